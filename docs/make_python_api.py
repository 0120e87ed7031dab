"""Writes docs/python-api.md out of signatures and docstrings: python docs/make_reference.py"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, get_args

import backstay
from backstay.app import AppSchedules

LIBRARY = Path(__file__).with_name("library.md")
LINE_MAX: Final = 76  # what the column of the site shows without scrolling
# What each part is about, in the order in which people meet the names. A public name that is in none fails the page.
PARTS: Final = {
    "Rows in, answers out": (
        "map",
        "amap",
        "imap",
        "run_file",
        "plan",
        "Results",
        "Answer",
        "AnswerError",
        "TokensUsed",
        "MapSummary",
        "Plan",
        "Image",
        "File",
        "Jinja",
    ),
    "The application": ("Backstay", "TickReport", "Schedule", "SyncBackstay", "SyncJob"),
    "Jobs and results": ("Job", "JobView", "JobState", "Result", "ItemState"),
    "Inside a handler": ("Context", "TaskAnswer", "done", "running", "gone_wrong"),
    "Policies and limits": ("RetryPolicy", "BreakerPolicy", "Limits"),
    "Errors": (
        "BackstayError",
        "Transient",
        "Throttled",
        "Permanent",
        "ProviderHeld",
        "OutcomeUnknown",
        "Skip",
        "UsageError",
        "NotFound",
        "NotAllowed",
        "IdempotencyConflict",
        "WaitTimeout",
        "RowsFailed",
        "RequestsRefused",
        "HandlerError",
        "DatabaseUnreachable",
        "DatabaseRefused",
        "SchemaBehind",
        "SchemaNewer",
        "FilesUnreachable",
        "BrokerUnreachable",
        "ErrorCode",
    ),
    "The version": ("__version__",),
}
# The tables of the library's page, by the words that they begin with, and the name below which they stand here too.
TABLES: Final = {
    "Backstay": ("option of `handler`", "option of `submit`"),
    "Job": ("on a `Job`",),
    "Context": ("a `Context` has",),
}
GIVEN: Final = ("Job", "SyncJob", "Context", "Results")  # Backstay makes these, so how they are made is of no use
MEANINGS: Final = {"ErrorCode": "errors.md", "JobState": "library.md#jobs", "ItemState": "library.md#jobs"}
TWINS: Final = {"SyncBackstay": backstay.Backstay, "SyncJob": backstay.Job}  # whose methods do the same
BLOCKS: Final = {"asynccontextmanager": "async with ", "contextmanager": "with "}


def page() -> str:
    named = [name for names in PARTS.values() for name in names]
    if sorted(named) != sorted(backstay.__all__):
        raise ValueError(f"in PARTS and not public, or the other way: {set(named) ^ set(backstay.__all__)}")
    parts = [
        "# Python API\n\nWritten by `python docs/make_reference.py` out of the code. [The library](library.md)\n"
        "explains how the parts work together, and has a program for each. `from backstay import …` gives every name\n"
        "that has a heading of its own.\n"
    ]
    for part, names in PARTS.items():
        parts += [f"## {part}\n", *(_entry(name) for name in names)]
    return "\n".join(parts)


def _entry(name: str) -> str:
    """A public name: its signature, its docstring, and what belongs to it."""
    found = getattr(backstay, name)
    texts = [f"### `{name}`\n", *_described(name, found)]
    texts += [_library_table(begins) for begins in TABLES.get(name, ())]
    if inspect.isclass(found) and not issubclass(found, Exception | Enum):
        texts += _members(name, found)
        texts += _members("Backstay.schedules", AppSchedules) if name == "Backstay" else []
    return "\n".join(texts)


def _described(name: str, found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield "The version that is installed, as text.\n"
    elif not inspect.isclass(found) and not callable(found):
        yield f"The type of a poll's answer: {' or '.join(f'`{kind.__name__}`' for kind in get_args(found))}.\n"
    elif inspect.isclass(found) and issubclass(found, Enum):
        named = ", ".join(f"`{member.name}`" for member in found)
        yield f"{_docstring(found)}\n\n{named}. [What each means]({MEANINGS[name]}).\n"
    elif inspect.isclass(found) and (is_dataclass(found) or hasattr(found, "_fields")):
        yield f"{_docstring(found)}\n\n{_fields(found)}"
    elif inspect.isclass(found):
        yield f"{'' if name in GIVEN else _signature(name, found.__init__)}{_docstring(found)}\n"
    else:
        yield f"{_signature(name, found)}{_docstring(found)}\n"


def _members(name: str, kind: type) -> Iterator[str]:
    """Its public methods and properties, in the order of the source."""
    for member, value in vars(kind).items():
        called = value.fget if isinstance(value, property) else inspect.unwrap(value) if callable(value) else None
        if member.startswith("_") or not inspect.isfunction(called):
            continue
        shown = _property(called) if isinstance(value, property) else _signature(member, called)
        said = _docstring(called) or _docstring(getattr(TWINS.get(name), member, None))
        yield f"#### `{name}.{member}`\n\n{shown}{said}".rstrip() + "\n"


def _property(called: Callable[..., Any]) -> str:
    node = _definition(called)
    return f"A property: `{ast.unparse(node.returns)}`. " if node.returns else "A property. "


def _fields(kind: Any) -> str:
    hints = {name: _plain(str(hint)) for name, hint in inspect.get_annotations(kind).items()}
    lines = ["| field | type | default |", "|---|---|---|"]
    if is_dataclass(kind):
        lines += [f"| `{one.name}` | `{_cell(hints[one.name])}` | {_default(one.default)} |" for one in fields(kind)]
    else:
        defaults: dict[str, Any] = kind._field_defaults
        lines += [
            f"| `{one}` | `{_cell(hints[one])}` | {_default(defaults.get(one, MISSING))} |" for one in kind._fields
        ]
    return "\n".join(lines) + "\n"


def _default(value: Any) -> str:
    return "" if value is MISSING else f"`{value!r}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _plain(text: str) -> str:
    """A type's name without its module."""
    return re.sub(r"<\w+ '([^']+)'>|(?:\w+\.)+(?=\w)", lambda at: (at[1] or "").rpartition(".")[2], text)


def _signature(name: str, called: Callable[..., Any]) -> str:
    """As it is written in the source, with the types as their author named them."""
    node = _definition(called)
    arguments, used = _arguments(node.args), _used(node)
    wanted = node.returns is not None and node.name != "__init__" and "with" not in used
    returns = f" -> {ast.unparse(node.returns).strip(chr(39))}" if node.returns and wanted else ""
    line = f"{used}{name}({', '.join(arguments)}){returns}"
    if len(line) > LINE_MAX:
        line = f"{used}{name}(\n    {f',{chr(10)}    '.join(arguments)},\n){returns}"
    return f"<!-- not run: a signature -->\n```python\n{line}\n```\n\n"


def _definition(called: Callable[..., Any]) -> ast.FunctionDef | ast.AsyncFunctionDef:
    [node] = ast.parse(textwrap.dedent(inspect.getsource(called))).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return node


def _used(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """What stands before a call of it."""
    for decorator in node.decorator_list:
        if ast.unparse(decorator) in BLOCKS:
            return BLOCKS[ast.unparse(decorator)]
    yields = any(isinstance(one, ast.Yield) for one in ast.walk(node))
    return "await " if isinstance(node, ast.AsyncFunctionDef) and not yields else ""


def _arguments(given: ast.arguments) -> list[str]:
    """Each as text, without `self`."""
    defaults = [None] * (len(given.args) - len(given.defaults)) + list(given.defaults)
    texts = [_argument(one, default) for one, default in zip(given.args, defaults, strict=True) if one.arg != "self"]
    if given.vararg is not None:
        texts.append(f"*{ast.unparse(given.vararg)}")
    elif given.kwonlyargs:
        texts.append("*")
    texts += [_argument(one, default) for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return [*texts, f"**{ast.unparse(given.kwarg)}"] if given.kwarg is not None else texts


def _argument(one: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(one) if default is None else f"{ast.unparse(one)} = {ast.unparse(default)}"


def _docstring(found: Any) -> str:
    """Its own, not that of a base class of Python's."""
    own = getattr(found, "fget", found)
    return inspect.cleandoc(own.__doc__) if own is not None and own.__doc__ else ""


def _library_table(begins: str) -> str:
    """A table of the library's page; links to a heading there lead there from here as well."""
    rows = LIBRARY.read_text(encoding="utf-8").partition(f"\n| {begins}")[2].partition("\n\n")[0]
    if not rows:
        raise ValueError(f"docs/library.md has no table that begins with {begins!r}")
    return f"| {begins}{rows}\n".replace("](#", "](library.md#")
