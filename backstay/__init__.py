"""Durable work whose every item calls an outside service that is slow, flaky, rate-limited and paid for."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Backstay",
    "BackstayError",
    "BreakerPolicy",
    "Context",
    "DatabaseUnreachable",
    "ErrorCode",
    "IdempotencyConflict",
    "Job",
    "Limits",
    "NotAllowed",
    "NotFound",
    "OutcomeUnknown",
    "Permanent",
    "ProviderHeld",
    "Result",
    "RetryPolicy",
    "Skip",
    "SyncBackstay",
    "Throttled",
    "Transient",
    "UsageError",
    "WaitTimeout",
    "__version__",
    "done",
    "gone_wrong",
    "running",
]

if TYPE_CHECKING:
    from backstay.app import Backstay
    from backstay.client import Job, Result
    from backstay.core.breaker import BreakerPolicy
    from backstay.core.errors import (
        BackstayError,
        DatabaseUnreachable,
        ErrorCode,
        IdempotencyConflict,
        NotAllowed,
        NotFound,
        OutcomeUnknown,
        Permanent,
        ProviderHeld,
        Skip,
        Throttled,
        Transient,
        UsageError,
        WaitTimeout,
    )
    from backstay.core.limits import Limits
    from backstay.core.retry import RetryPolicy
    from backstay.handlers.function import Answer, done, gone_wrong, running
    from backstay.handlers.handler import Context
    from backstay.sync import SyncBackstay

_HOMES = {
    "Backstay": "app",
    "Job": "client",
    "Result": "client",
    "BreakerPolicy": "core.breaker",
    "Limits": "core.limits",
    "RetryPolicy": "core.retry",
    "SyncBackstay": "sync",
    "Context": "handlers.handler",
    "Answer": "handlers.function",
    "done": "handlers.function",
    "gone_wrong": "handlers.function",
    "running": "handlers.function",
}


def __getattr__(name: str) -> Any:
    """Loads a public name at its first use, so that `backstay --version` need not load the engine."""
    if name not in __all__:
        raise AttributeError(f"module 'backstay' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"backstay.{_HOMES.get(name, 'core.errors')}"), name)
