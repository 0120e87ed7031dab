"""Payloads and results at the boundary: JSON text outside, the handler's own types inside."""

import inspect
import json
import typing
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any

from backstay.core.errors import ErrorCode, Permanent, UsageError

TYPES_REMEMBERED_MAX = 256
_PLAIN = (Any, inspect.Parameter.empty, dict, list, str, int, float, bool, object)
_JSON_TYPES: dict[type, type | tuple[type, ...]] = {
    dict: dict,
    list: (list, tuple),
    str: str,
    int: int,
    float: (int, float),
    bool: bool,
}


def dump(value: Any, what: str = "the payload") -> str:
    """JSON in pure ASCII: every database accepts it."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} is not JSON: {error}") from error


def _plain_value(value: Any) -> Any:
    """Pydantic models and dataclasses as plain values."""
    return _adapter(value.__class__).dump_python(value, mode="json")


@lru_cache(maxsize=TYPES_REMEMBERED_MAX)
def _adapter(kind: type) -> Any:
    """Made once per type: creating one costs many times more than using it."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain_value)
_DECODER = json.JSONDecoder()


class PayloadType:
    """Checks and makes a handler's argument from JSON, as its annotation says; plain JSON types pass as they are."""

    def __init__(self, annotation: Any) -> None:
        self._adapter: Any = None
        self._kind = annotation if annotation in _JSON_TYPES else None
        if annotation not in _PLAIN:
            from pydantic import TypeAdapter

            self._adapter = TypeAdapter(annotation)

    def load(self, body: str) -> Any:
        if self._adapter is not None:
            return self._adapter.validate_json(body)
        payload = _DECODER.decode(body)
        if self._kind is not None and not _is(payload, self._kind):
            raise Permanent(_mismatch(payload, self._kind), ErrorCode.GW_4XX)
        return payload

    def check(self, payload: Any) -> None:
        if self._kind is not None and not _is(payload, self._kind):
            raise UsageError(_mismatch(payload, self._kind))
        if self._adapter is None:
            return
        from pydantic import ValidationError

        try:
            self._adapter.validate_json(dump(payload))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "value"
            raise UsageError(f"the payload does not fit the handler: {where}: {first['msg']}") from error


class ResultType:
    """Makes of a result's JSON what the handler returned, as its return annotation says."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._annotation = _hints(function).get("return", Any)

    @cached_property
    def _adapter(self) -> Any:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        try:
            return None if self._annotation in _PLAIN else TypeAdapter(self._annotation)
        except PydanticUserError:  # of a class that it does not know
            return None

    def load(self, text: str) -> Any:
        """A result that is not as annotated stays plain JSON: one of them must not hide the others."""
        if self._adapter is not None:
            with suppress(Exception):  # a validator is the user's own code, and may raise anything
                return self._adapter.validate_json(text, strict=True)
        return _DECODER.decode(text)


def _is(payload: Any, kind: type) -> bool:
    """Whether a value is of a plain JSON type: a whole number is also a float, and true is not a number."""
    if isinstance(payload, bool):
        return kind is bool
    return isinstance(payload, _JSON_TYPES[kind])


def _mismatch(payload: Any, kind: type) -> str:
    return f"the payload does not fit the handler: it must be {kind.__name__}, not {type(payload).__name__}"


def payload_annotation(function: Callable[..., Any]) -> tuple[Any, bool]:
    """The annotation of a handler's one payload parameter, and whether it also wants a `context`."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    wants_context = any(p.name == "context" for p in parameters)
    payload = [p for p in parameters if p.name != "context" and p.default is inspect.Parameter.empty]
    if len(payload) != 1 or payload[0].kind in (payload[0].VAR_POSITIONAL, payload[0].VAR_KEYWORD):
        name = getattr(function, "__name__", str(function))
        raise UsageError(f"{name} must take one payload, and optionally a context: def {name}(item, context)")
    return _hints(function).get(payload[0].name, inspect.Parameter.empty), wants_context


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError:
        return {}
