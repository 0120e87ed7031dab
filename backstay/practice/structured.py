"""Answers in the form of the JSON Schema that a request asks for, and answers that break it."""

import hashlib
import json
import re
from collections.abc import Mapping
from random import Random
from typing import Any, Final

from backstay.practice.faults import AnswerFault, AnyFault

DEPTH_MAX: Final = 6
ITEMS_USUAL: Final = 2
_MARK: Final = re.compile(r"JSON Schema:\s*(?=\{)")
_DECODER: Final = json.JSONDecoder()
_FORMATS: Final = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "P3D",
    "email": "practice@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/practice",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}


def form_answer(schema: Any, prompt: str, fault: AnyFault | None, again: bool) -> str | None:
    """The answer to a request for JSON of this schema, or of a schema in the prompt; None: the request asks for no
    JSON.

    `again`: the request shows an earlier answer.
    """
    if not isinstance(schema, dict):
        found = _MARK.search(prompt)
        schema = _schema_at(prompt, found.end()) if found else None
    if schema is None:
        return None
    seed = hashlib.blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    rng = Random(seed)
    text = json.dumps(value_for(schema, schema, rng, seed))
    if fault is AnswerFault.INVALID or (fault is AnswerFault.INVALID_ONCE and not again):
        return rng.choice((f"Here is what I found: {seed}", text[: len(text) // 2], "[null]", f"```json\n{text}"))
    return text


def _schema_at(prompt: str, at: int) -> Any:
    try:
        return _DECODER.raw_decode(prompt, at)[0]
    except ValueError:
        return None


def value_for(node: Any, root: Mapping[str, Any], rng: Random, mark: str, depth: int = 0) -> Any:
    """A value that fits the schema, always the same for the same `rng`."""
    if not isinstance(node, dict):
        return mark
    if isinstance(ref := node.get("$ref"), str):
        return value_for(_resolve(root, ref), root, rng, mark, depth + 1)
    if "const" in node:
        return node["const"]
    if isinstance(node.get("enum"), list):
        return rng.choice(node["enum"])
    if choices := node.get("anyOf") or node.get("oneOf"):
        ends = [each for each in choices if isinstance(each, dict) and each.get("type") == "null"]
        return value_for(rng.choice(ends if ends and depth > DEPTH_MAX else choices), root, rng, mark, depth + 1)
    if isinstance(node.get("allOf"), list):
        parts = [value_for(each, root, rng, mark, depth + 1) for each in node["allOf"]]
        return {name: value for part in parts if isinstance(part, dict) for name, value in part.items()} or parts[0]
    return _value_of_type(node, root, rng, mark, depth)


def _resolve(root: Mapping[str, Any], ref: str) -> Any:
    found: Any = root
    for part in ref.removeprefix("#").strip("/").split("/"):
        found = found.get(part) if isinstance(found, dict) and part else found
    return found


def _value_of_type(node: Mapping[str, Any], root: Mapping[str, Any], rng: Random, mark: str, depth: int) -> Any:
    kind = node.get("type") or ("object" if "properties" in node else "string")
    if isinstance(kind, list):
        kind = "null" if "null" in kind and depth > DEPTH_MAX else next(each for each in kind if each != "null")
    match kind:
        case "object":
            return _members(node, root, rng, mark, depth)
        case "array":
            return _items(node, root, rng, mark, depth)
        case "integer" | "number":
            return _number(node, rng, kind == "integer")
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
        case _:
            return _text(node, mark)


def _members(node: Mapping[str, Any], root: Mapping[str, Any], rng: Random, mark: str, depth: int) -> dict[str, Any]:
    named = node.get("properties") or {}
    if not named and isinstance(further := node.get("additionalProperties"), dict):
        return {"practice": value_for(further, root, rng, mark, depth + 1)}
    must = node.get("required") or ()
    kept = {name: part for name, part in named.items() if depth <= DEPTH_MAX or name in must}
    return {name: value_for(part, root, rng, mark, depth + 1) for name, part in kept.items()}


def _items(node: Mapping[str, Any], root: Mapping[str, Any], rng: Random, mark: str, depth: int) -> list[Any]:
    places = [value_for(part, root, rng, mark, depth + 1) for part in node.get("prefixItems") or ()]
    least, most = node.get("minItems") or 0, node.get("maxItems")
    wanted = max(least, 0 if depth > DEPTH_MAX or places else ITEMS_USUAL)
    wanted = wanted if most is None else min(wanted, most)
    part = node.get("items", True)
    return places + [value_for(part, root, rng, f"{mark}{n}", depth + 1) for n in range(wanted - len(places))]


def _number(node: Mapping[str, Any], rng: Random, whole: bool) -> float:
    low = node.get("minimum", node.get("exclusiveMinimum", -1) + 1)
    high = node.get("maximum", node.get("exclusiveMaximum", max(low + 10, 10)) - (0 if "maximum" in node else 1))
    step = node.get("multipleOf")
    value = rng.randint(int(low), int(max(high, low))) if whole else low + (max(high, low) - low) * rng.random()
    return value if not step else -(-low // step) * step


def _text(node: Mapping[str, Any], mark: str) -> str:
    if node.get("format") in _FORMATS:
        return _FORMATS[node["format"]]
    text = f"practice {mark}".ljust(node.get("minLength") or 0, "x")
    return text[: node["maxLength"]] if isinstance(node.get("maxLength"), int) else text


def shows_answer(turns: Any) -> bool:
    """Whether a conversation has a turn of the model."""
    return isinstance(turns, list) and any(
        isinstance(each, dict) and each.get("role") in ("assistant", "model") for each in turns
    )
