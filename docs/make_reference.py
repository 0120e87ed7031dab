"""Writes the reference pages out of the code: python docs/make_reference.py"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from prometheus_client import CollectorRegistry

from backstay import Backstay
from backstay.cli.main import EXIT_CODES
from backstay.cli.provider import ability_of, ability_row
from backstay.core import errors, events
from backstay.core.breaker import BreakerPolicy
from backstay.core.errors import BackstayError, ErrorCode, HandlerError
from backstay.core.failures import GATEWAY
from backstay.core.limits import RANGES, Limits
from backstay.llm.providers import provider_names
from backstay.observe.metrics import Gauges, Metrics
from backstay.server.app import create_app
from backstay.server.service import ServiceOptions
from backstay.settings import Settings
from backstay.store.webhooks import EVENTS, ITEM_EVENTS, TEST_EVENT
from docs import make_commands, make_python_api

HERE = Path(__file__).parent
WRITTEN = "Written by `python docs/make_reference.py` out of the code."
ROW = re.compile(r"^\| `(\w+)` \|(.*)\|$")
REFUSALS = {"400", "401", "403", "404", "422", "429", "503"}  # that any operation may answer with
METHODS = ("get", "post", "put", "patch", "delete")


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines).replace("|  |", "| |") + "\n"


# settings: names and defaults are the code's, the words are the page's own


def in_effect() -> dict[str, Any]:
    """What counts where a setting is left out."""
    limits, breaker = Limits(), BreakerPolicy()
    return {
        "retry_max_attempts": GATEWAY.attempts_max,
        "retry_base_delay_ms": GATEWAY.base_ms,
        "retry_jitter_max_ms": GATEWAY.jitter_ms,
        "worker_lease_ttl_sec": limits.lease_seconds,
        "worker_concurrency": limits.worker_concurrency,
        "gateway_timeout_ms": round(limits.call_timeout_seconds * 1000),
        "circuit_window": breaker.window_calls,
        "circuit_fail_threshold": breaker.fail_ratio,
        "circuit_cooldown_ms": breaker.open_ms,
    }


def settings_page(now: str) -> str:
    """The page with its tables brought up to date; a setting without words fails."""
    found = {
        found[1]: [cell.strip() for cell in found[2].split("|")] for found in map(ROW.match, now.splitlines()) if found
    }
    defaults = {name: field.get_default(call_default_factory=True) for name, field in Settings.model_fields.items()}
    defaults |= in_effect()
    plain = [(name, value) for name, value in defaults.items() if name != "limits"]
    bounds = [(field.name, field.default) for field in fields(Limits)]
    missing = [name for name, _ in [*plain, *bounds] if name not in found]
    if missing:
        raise SystemExit(f"docs/settings.md has no row for {', '.join(missing)}: add one that says what it is")
    return _tabled(_tabled(now, "settings", _settings(plain, found)), "bounds", _bounds(bounds, found))


def _settings(rows: list[tuple[str, Any]], words: Mapping[str, list[str]]) -> str:
    return table(
        ("setting", "default", "what it is"),
        [(f"`{name}`", _default(value, words[name][0]), words[name][-1]) for name, value in rows],
    )


def _bounds(rows: list[tuple[str, Any]], words: Mapping[str, list[str]]) -> str:
    return table(
        ("bound", "default", "from, to", "what it is"),
        [
            (
                f"`{name}`",
                _default(value, words[name][0]),
                f"{RANGES[name][0]:g}, {RANGES[name][1]:.0f}",
                words[name][-1],
            )
            for name, value in rows
        ],
    )


def _default(value: Any, said: str) -> str:
    """None, an empty text and an empty table are nothing; what that means only the page can say."""
    if value in (None, "", {}):
        return said
    return f"`{value}`" if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


def _tabled(page: str, name: str, made: str) -> str:
    return re.sub(
        rf"(<!-- {name} -->\n\n).*?(\n<!-- /{name} -->)", lambda at: f"{at[1]}{made}{at[2]}", page, flags=re.DOTALL
    )


# the others are written whole


def operations_page() -> str:
    schema = create_app(Backstay("sqlite:///never-made.db"), ServiceOptions()).openapi()
    parts = [
        f"# HTTP operations\n\n{WRITTEN} `GET /api/openapi.json` has the same with all shapes,\n"
        "[the API](api.md) tells how to use it. Any operation may also answer 400, 401, 403, 404, 422, 429 or 503.\n"
    ]
    for tag, rows in sorted(_operations(schema).items()):
        parts.append(f"## {tag}\n\n{table(('operation', 'what it does', 'parameters', 'answers'), rows)}")
    return "\n".join(parts)


def _operations(schema: Mapping[str, Any]) -> dict[str, list[tuple[str, ...]]]:
    found: dict[str, list[tuple[str, ...]]] = {}
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            if method in METHODS:
                first, second = [*path.split("/"), ""][1:3]
                area = f"/{first}/{second}" if first in ("api", "v1") else "Others"
                found.setdefault(area, []).append(_operation(method, path, operation))
    return found


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> tuple[str, ...]:
    said = operation.get("description") or operation.get("summary") or ""
    named = [f"`{one['name']}`" for one in operation.get("parameters", []) if one["in"] == "query"]
    body = ["a body"] if "requestBody" in operation else []
    answers = ", ".join(sorted(set(operation["responses"]) - REFUSALS - {"default"}))
    text = " ".join(said.split()).replace("|", "\\|")
    return f"`{method.upper()} {path}`", text, ", ".join([*body, *named]), answers


def metrics_page() -> str:
    looked = CollectorRegistry()
    Gauges(looked)
    return (
        f"# Metrics\n\n{WRITTEN} `backstay worker`, `backstay serve` and `backstay relay` serve them\nwith "
        "`--metrics-port`.\n\n## Of a process\n\nEach counts for itself: add them up. Of gauges take the newest.\n\n"
        f"{_families(Metrics().registry)}\n## Of the database\n\n"
        "Workers and services look every few seconds, and all show the same: take the newest, not the sum.\n\n"
        f"{_families(looked)}"
    )


def _families(registry: CollectorRegistry) -> str:
    rows = []
    for family in registry.collect():
        collector: Any = registry._names_to_collectors[family.name]
        labels = ", ".join(f"`{label}`" for label in collector._labelnames)
        name = f"{family.name}_total" if family.type == "counter" else family.name
        rows.append((f"`{name}`", family.type, labels, family.documentation))
    return table(("metric", "type", "labels", "what it is"), rows)


def events_page() -> str:
    rows = []
    for event in get_args(events.Event):
        named = ", ".join(f"`{field.name}`" for field in fields(event))
        rows.append((f"`{event.__name__}`", " ".join((event.__doc__ or "").split()), named))
    told = "".join(f"- `{name}`\n" for name in (*EVENTS, TEST_EVENT))
    with_setting = ", ".join(f"`{name}`" for name in ITEM_EVENTS)
    return (
        f"# Events\n\n{WRITTEN}\n\n## Inside a process\n\n"
        "The engine tells what happens as values; the log and the [metrics](metrics.md) listen. No payload and no\n"
        "result is in a log line.\n\n"
        f"{table(('event', 'told when', 'fields'), rows)}\n"
        f"## To webhooks\n\n[Webhooks](webhooks.md) get these events:\n\n{told}\n"
        f"With `item_events` also {with_setting}.\n\n"
        "## To those who watch\n\n`event: job`, `event: item` and `event: gone` of the "
        "[live streams](traffic.md#live-events); `progress`, `held`,\n`released`, `note` and `summary` of "
        "`backstay run --json`, see [runs](run.md).\n"
    )


def errors_page() -> str:
    codes = table(("code", "means"), [(f"`{code}`", WORDS[code]) for code in ErrorCode])
    tree = (errors.__doc__ or "").partition("\n\n")[2].partition("\n\nThe docstring")[0]
    kinds = [kind for kind in _below(BackstayError) if not issubclass(kind, HandlerError)]
    rows = [
        (f"`{kind.__name__}`", str(kind.exit_code), (kind.__doc__ or "").splitlines()[0], kind.hint or "")
        for kind in kinds
    ]
    exits = table(("code", "means"), [(str(code), means) for code, means in EXIT_CODES.items()])
    return (
        f"# Errors and exit codes\n\n{WRITTEN}\n\n## Of an item\n\nThese are all codes. "
        f"[The library](library.md#what-a-handler-may-raise) says what leads to which.\n\n{codes}\n"
        f"## Exit codes\n\n{exits}\n## Exceptions\n\n"
        f"{table(('exception', 'exit code', 'says', 'and what to do'), rows)}\n"
        f"<!-- not run: a tree -->\n```text\n{tree}\n```\n"
    )


WORDS: dict[ErrorCode, str] = {
    ErrorCode.NOT_PDF: "the source is not a PDF",
    ErrorCode.TOO_LARGE: "the body is too large",
    ErrorCode.GW_4XX: "the request is refused as it is, or throttled",
    ErrorCode.GW_5XX: "the provider, or the way to it, is broken",
    ErrorCode.GW_TIMEOUT: "no answer in time; a deadline or a time limit passed",
    ErrorCode.IO_ERROR: "disk, file or memory trouble on our side",
    ErrorCode.NOT_READY: "it has not ended yet",
    ErrorCode.EXPIRED: "what was asked for is gone",
    ErrorCode.FORBIDDEN: "credentials, quota or balance",
    ErrorCode.UNKNOWN: "a bug, or an outcome that nobody knows",
}


def _below(kind: type[BackstayError]) -> Iterator[type[BackstayError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _below(child)


# providers: the table of `backstay providers`, the words are the page's own


def providers_page(now: str) -> str:
    found = [ability_of(name, {}) for name in provider_names()]
    rows = [(f"[{row[0]}]({row[0]}.md)", *row[1:5], f"`{row[5]}`") for row in map(ability_row, found)]
    head = ("provider", "lanes", "call found again", "batch found again", "prices", "key in")
    begin, end = "<!-- table -->", "<!-- end of table -->"
    before, after = now.partition(begin)[0], now.partition(end)[2]
    return f"{before}{begin}\n{table(head, rows)}{end}{after}"


def pages() -> dict[str, str]:
    return {
        "commands.md": make_commands.page(),
        "settings.md": settings_page((HERE / "settings.md").read_text(encoding="utf-8")),
        "operations.md": operations_page(),
        "metrics.md": metrics_page(),
        "events.md": events_page(),
        "errors.md": errors_page(),
        "python-api.md": make_python_api.page(),
        "providers/index.md": providers_page((HERE / "providers" / "index.md").read_text(encoding="utf-8")),
    }


if __name__ == "__main__":
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")
        print(f"wrote {name}")
