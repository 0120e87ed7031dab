"""Backstay inside other libraries: their calls become durable, are paid once and stay under a budget."""

from typing import TYPE_CHECKING, Any

__all__ = ["BackstayChat", "BackstayModel", "CallFailed", "dataset_mapper"]

if TYPE_CHECKING:
    from backstay.adapters.langchain import BackstayChat
    from backstay.adapters.pydantic_ai import BackstayModel
    from backstay.adapters.requests import CallFailed, dataset_mapper

_HOMES = {
    "BackstayChat": "langchain",
    "BackstayModel": "pydantic_ai",
    "CallFailed": "requests",
    "dataset_mapper": "requests",
}
_EXTRAS = {"BackstayChat": "langchain", "BackstayModel": "pydantic-ai"}


def __getattr__(name: str) -> Any:
    """Loads an adapter at its first use: nobody needs the libraries of the others."""
    if name not in __all__:
        raise AttributeError(f"module 'backstay.adapters' has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"backstay.adapters.{_HOMES[name]}"), name)
    except ImportError as error:
        error.add_note(f"Hint: pip install 'backstay[{_EXTRAS.get(name, 'datasets')}]'")
        raise
