"""Writes a JSON Schema in the form that a provider accepts. A constraint that the provider does not support goes into
the description, or is refused by its name."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

from backstay.core.errors import UsageError

Schema = dict[str, Any]

LOSSES_SHOWN_MAX: Final = 50
_DEFS: Final = "$defs"
_ROOT: Final = "Root"
_NULL: Final = {"type": "null"}
_OBJECT_PARTS: Final = ("properties", "additionalProperties", "required")
_ARRAY_PARTS: Final = ("items", "prefixItems")
# Constraints on a value. One that a provider does not know goes into the description, and is checked here.
_CONSTRAINTS: Final = (
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedItems",
    "minProperties",
    "maxProperties",
    "propertyNames",
    "patternProperties",
    "unevaluatedProperties",
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
)
_JSON_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


@dataclass(frozen=True, slots=True)
class SchemaDialect:
    """The features of JSON Schema that one provider supports."""

    provider: str
    keywords: frozenset[str] = frozenset()  # the constraints that it enforces
    formats: frozenset[str] = frozenset()  # the values of `format` that it enforces
    all_required: bool = False  # every member must be required: an optional one may be null instead
    maps: bool = False  # objects with free keys
    tuples: bool = False  # arrays with a schema for each place
    any_value: bool = False  # values of any type
    recursion: bool = False
    const: bool = True
    not_enforced: bool = False  # it also takes a schema as a mere hint
    depth_max: int | None = None
    properties_max: int | None = None
    optional_max: int | None = None
    unions_max: int | None = None


class ExpressedSchema(NamedTuple):
    """A schema in the form that a provider takes, and what got lost on the way.

    None: it can only be told in words. If it is not strict, the provider does not enforce it.
    """

    schema: Schema | None
    strict: bool = True
    losses: tuple[str, ...] = ()


def express(schema: Schema, dialect: SchemaDialect) -> ExpressedSchema:
    """Raises UsageError, which names the part, for a schema that the provider would refuse."""
    writer = _Writer(schema, dialect)
    written = writer.write_root()
    losses = tuple(writer.losses)[:LOSSES_SHOWN_MAX]
    if not writer.free:
        return ExpressedSchema(written, True, losses)
    what = writer.free[0]
    if dialect.not_enforced:
        words = f"{what}: {dialect.provider} cannot enforce it, so the whole schema is only a hint to the model"
        return ExpressedSchema(schema, False, (*losses, words))
    words = f"{what}: {dialect.provider} cannot express it, so the schema is written into the prompt"
    return ExpressedSchema(None, False, (*losses, words))


def resolve(root: Schema, node: Any) -> Any:
    """The schema of a node: the node itself, or the definition that it refers to."""
    seen = set[str]()
    while isinstance(node, dict) and isinstance(ref := node.get("$ref"), str) and ref not in seen:
        seen.add(ref)
        node = _at(root, ref)
    return node


def _at(root: Schema, ref: str) -> Any:
    if not ref.startswith("#"):
        return None
    found: Any = root
    for part in ref[1:].strip("/").split("/") if ref.strip("#/") else ():
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


class _Writer:
    def __init__(self, root: Schema, dialect: SchemaDialect) -> None:
        self._root = root
        self._dialect = dialect
        self._defs: Schema = {}
        self._names: dict[str, str] = {}  # of the definitions, by their references
        self._open: list[str] = []  # the references that are being written
        self._properties = self._optional = self._unions = 0
        self.losses: dict[str, None] = {}  # in their order, each once
        self.free: list[str] = []  # features that the dialect does not support

    def write_root(self) -> Schema:
        ref = self._root.get("$ref")
        if isinstance(ref, str):
            self._names[ref] = ref.rpartition("/")[2]
            self._open.append(ref)
        written: Schema = self._write(resolve(self._root, self._root), "", 1)
        if isinstance(ref, str):
            self._defs[self._names[ref]] = written
        text = json.dumps([written, *self._defs.values()])
        if used := {name: part for name, part in self._defs.items() if f'"#/{_DEFS}/{name}"' in text}:
            written = {**written, _DEFS: used}
        dialect = self._dialect
        for what, number, most in (
            ("properties", self._properties, dialect.properties_max),
            ("optional properties", self._optional, dialect.optional_max),
            ("properties with several types", self._unions, dialect.unions_max),
        ):
            if most is not None and number > most:
                self._refuse("", f"has {number} {what}; the limit is {most}")
        return written

    def _write(self, node: Any, at: str, depth: int) -> Schema:
        if self._dialect.depth_max is not None and depth > self._dialect.depth_max:
            self._refuse(at, f"is nested more than {self._dialect.depth_max} levels deep")
        node = {} if node is True else node
        if not isinstance(node, dict):
            self._refuse(at, "allows no value")
        if not (node.keys() - {"description", "title", "default", "examples", "$comment"}):
            return self._write_any(node, at)
        if "$ref" in node:
            return self._write_ref(node, at, depth)
        if "allOf" in node:
            return self._write(self._merge(node, at), at, depth)
        written = self._write_union(node, at, depth) or self._write_type(node, at, depth)
        if described := self._describe(node, at):
            written["description"] = described
        return written

    def _write_any(self, node: Schema, at: str) -> Schema:
        if not self._dialect.any_value:
            self.free.append(f"{at or 'the schema'} may be any value")
        return {"description": node["description"]} if node.get("description") else {}

    def _write_ref(self, node: Schema, at: str, depth: int) -> Schema:
        ref = node["$ref"]
        meant = _at(self._root, ref) if isinstance(ref, str) else None
        if not isinstance(meant, dict):
            self._refuse(at, f"refers to {ref!r}, which is not in the schema")
        if ref in self._open:
            if not self._dialect.recursion:
                self._refuse(at, f"contains itself ({ref}), and {self._dialect.provider} has no recursive schemas")
            return {"$ref": f"#/{_DEFS}/{self._names[ref]}"}
        if ref not in self._names:
            plain = ref.rpartition("/")[2] if ref.strip("#/") else _ROOT
            self._names[ref] = plain if plain not in self._defs else f"{plain}{len(self._defs)}"
            name = self._names[ref]
            self._defs[name] = {}
            self._open.append(ref)
            self._defs[name] = self._write(meant, at, depth)
            self._open.pop()
        beside = {name: value for name, value in node.items() if name != "$ref"}
        if beside.get("description") and not self._is_recursive(ref):
            # Not all providers read what stands beside a reference.
            return {**self._defs[self._names[ref]], "description": beside["description"]}
        return {"$ref": f"#/{_DEFS}/{self._names[ref]}"}

    def _is_recursive(self, ref: str) -> bool:
        name = f'"#/{_DEFS}/{self._names[ref]}"'
        return name in json.dumps(self._defs[self._names[ref]])

    def _merge(self, node: Schema, at: str) -> Schema:
        """One schema instead of several that must all fit."""
        merged: Schema = {}
        for part in (*node["allOf"], {name: value for name, value in node.items() if name != "allOf"}):
            part = resolve(self._root, part)
            if not isinstance(part, dict):
                self._refuse(at, "has an allOf with a part that is not a schema")
            for name, value in part.items():
                if name == "properties":
                    merged[name] = {**merged.get(name, {}), **value}
                elif name == "required":
                    merged[name] = list(dict.fromkeys((*merged.get(name, ()), *value)))
                elif merged.setdefault(name, value) != value and name not in ("title", "description", "$defs"):
                    self._refuse(at, f"has an allOf whose parts disagree on {name}")
        return merged

    def _write_union(self, node: Schema, at: str, depth: int) -> Schema | None:
        kind = "anyOf" if "anyOf" in node else "oneOf" if "oneOf" in node else None
        if kind is None:
            return None
        if kind == "oneOf":
            self._lose(at, "oneOf becomes anyOf")
        base = {name: node[name] for name in ("type", *_OBJECT_PARTS) if name in node}
        parts = [
            self._write({**base, **part} if base and "$ref" not in part else part, at, depth) for part in node[kind]
        ]
        self._unions += 1
        return {"anyOf": parts}

    def _write_type(self, node: Schema, at: str, depth: int) -> Schema:
        written: Schema = {}
        if (kind := self._type_of(node)) is not None:
            written["type"] = kind
            self._unions += isinstance(kind, list)
        kinds = kind if isinstance(kind, list) else [kind]
        for name in ("enum", "const"):
            if name in node:
                self._put_choice(name, node[name], written)
        if "object" in kinds:
            self._write_object(node, written, at, depth)
        if "array" in kinds:
            self._write_array(node, written, at, depth)
        if kind is None and not written:
            return self._write_any(node, at)
        for name in _CONSTRAINTS:
            if name in node and self._knows(name, node[name]):
                written[name] = node[name]
        return written

    @staticmethod
    def _type_of(node: Schema) -> Any:
        if "type" in node:
            return node["type"]
        if any(name in node for name in _OBJECT_PARTS):
            return "object"
        if any(name in node for name in _ARRAY_PARTS):
            return "array"
        values = node["enum"] if isinstance(node.get("enum"), list) else [node["const"]] if "const" in node else []
        kinds = {_JSON_TYPES.get(type(value)) for value in values}
        return kinds.pop() if len(kinds) == 1 else None

    def _put_choice(self, name: str, value: Any, written: Schema) -> None:
        if name == "const" and not self._dialect.const:
            name, value = "enum", [value]
        written[name] = value

    def _write_object(self, node: Schema, written: Schema, at: str, depth: int) -> None:
        properties = node.get("properties") or {}
        further = node.get("additionalProperties", not properties)
        if further is not False and not properties:
            if not self._dialect.maps:
                self.free.append(f"{at or 'the schema'} is an object with free keys")
            written["additionalProperties"] = further if further is True else self._write(further, f"{at}.*", depth + 1)
            return
        if further is not False and "additionalProperties" in node:
            self._lose(at, "further members are not allowed")
        required = [name for name in node.get("required") or () if name in properties]
        written["properties"] = {}
        for name, part in properties.items():
            self._properties += 1
            inner = self._write(part, f"{at}.{name}" if at else name, depth + 1)
            if name not in required:
                self._optional += 1
                inner = _nullable(inner) if self._dialect.all_required else inner
            written["properties"][name] = inner
        written["required"] = list(properties) if self._dialect.all_required else required
        written["additionalProperties"] = False

    def _write_array(self, node: Schema, written: Schema, at: str, depth: int) -> None:
        places = node.get("prefixItems")
        if isinstance(places, list):
            if not self._dialect.tuples:
                self.free.append(f"{at or 'the schema'} has a schema for each place")
            written["prefixItems"] = [self._write(part, f"{at}[{n}]", depth + 1) for n, part in enumerate(places)]
        if node.get("items") is not False and not (places and "items" not in node):
            written["items"] = self._write(node.get("items", True), f"{at}[]", depth + 1)

    def _knows(self, name: str, value: Any) -> bool:
        return name in self._dialect.keywords or (name == "format" and value in self._dialect.formats)

    def _describe(self, node: Schema, at: str) -> str:
        """The description with the constraints that the provider does not know."""
        told = []
        for name in _CONSTRAINTS:
            if name in node and not self._knows(name, node[name]):
                told.append(f"{name}: {json.dumps(node[name], ensure_ascii=False)}")
                self._lose(at, f"{name} becomes a part of the description")
        own = node.get("description")
        return " ".join(([own] if isinstance(own, str) and own else []) + ([f"({'; '.join(told)})"] if told else []))

    def _lose(self, at: str, what: str) -> None:
        self.losses[f"{at or 'the schema'}: {what}"] = None

    def _refuse(self, at: str, why: str) -> NoReturn:
        where = at or "the schema"
        raise UsageError(
            f"{self._dialect.provider} cannot take the schema: {where} {why}",
            hint="make the schema simpler, or use another provider",
        )


def _nullable(schema: Schema) -> Schema:
    """The same schema, or null."""
    if "anyOf" in schema:
        has = any(part.get("type") == "null" for part in schema["anyOf"])
        return schema if has else {**schema, "anyOf": [*schema["anyOf"], _NULL]}
    kind = schema.get("type")
    if kind is None or "const" in schema:
        described = {name: schema[name] for name in ("description",) if name in schema}
        rest = {name: value for name, value in schema.items() if name != "description"}
        return {"anyOf": [rest, _NULL], **described}
    kinds = kind if isinstance(kind, list) else [kind]
    if "null" in kinds:
        return schema
    values = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [*kinds, "null"], **values}


def drop_nulls(value: Any, node: Any, root: Schema) -> Any:
    """The value without the members that are null although the schema says that they are left out: where all members
    are required, a model says null for what it leaves out."""
    node = resolve(root, node)
    if not isinstance(node, dict):
        return value
    if isinstance(value, list):
        items = node.get("items")
        return [drop_nulls(each, items, root) for each in value] if isinstance(items, dict) else value
    if not isinstance(value, dict):
        return value
    for part in _parts(node, value, root):
        value = drop_nulls(value, part, root)
    properties, required = node.get("properties"), node.get("required") or ()
    if not isinstance(properties, dict):
        return value
    kept = {}
    for name, inner in value.items():
        if inner is None and name in properties and name not in required and not _allows_null(properties[name], root):
            continue
        kept[name] = drop_nulls(inner, properties.get(name), root)
    return kept


def _parts(node: Schema, value: Mapping[str, Any], root: Schema) -> Iterator[Any]:
    """The parts of a schema that may describe an object."""
    yield from node.get("allOf") or ()
    for part in (*(node.get("anyOf") or ()), *(node.get("oneOf") or ())):
        meant = resolve(root, part)
        properties = meant.get("properties") if isinstance(meant, dict) else None
        if not isinstance(properties, dict) or not value.keys() <= properties.keys():
            continue
        fixed = {name: each["const"] for name, each in properties.items() if isinstance(each, dict) and "const" in each}
        if all(name not in value or value[name] == const for name, const in fixed.items()):
            yield part


def _allows_null(node: Any, root: Schema) -> bool:
    node = resolve(root, node)
    if not isinstance(node, dict):
        return node is not False
    kind = node.get("type")
    if kind is not None:
        return kind == "null" or (isinstance(kind, list) and "null" in kind)
    choices = node.get("anyOf") or node.get("oneOf")
    if choices:
        return any(_allows_null(part, root) for part in choices)
    if "enum" in node:
        return None in node["enum"]
    return "const" not in node or node["const"] is None
