"""Durable work whose every item calls an outside service that is slow, flaky, rate-limited and paid for."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AnswerError",
    "Backstay",
    "BackstayError",
    "BreakerPolicy",
    "BrokerUnreachable",
    "Context",
    "DatabaseRefused",
    "DatabaseUnreachable",
    "ErrorCode",
    "File",
    "FilesUnreachable",
    "HandlerError",
    "IdempotencyConflict",
    "Image",
    "ItemState",
    "Jinja",
    "Job",
    "JobState",
    "JobView",
    "Limits",
    "MapSummary",
    "NotAllowed",
    "NotFound",
    "OutcomeUnknown",
    "Permanent",
    "Plan",
    "ProviderHeld",
    "RequestsRefused",
    "Result",
    "Results",
    "RetryPolicy",
    "RowsFailed",
    "Schedule",
    "SchemaBehind",
    "SchemaNewer",
    "Skip",
    "SyncBackstay",
    "SyncJob",
    "TaskAnswer",
    "Throttled",
    "TickReport",
    "TokensUsed",
    "Transient",
    "UsageError",
    "WaitTimeout",
    "__version__",
    "amap",
    "done",
    "gone_wrong",
    "imap",
    "map",
    "plan",
    "run_file",
    "running",
]

if TYPE_CHECKING:
    from backstay.app import Backstay
    from backstay.client import Job, Result
    from backstay.core.breaker import BreakerPolicy
    from backstay.core.errors import (
        BackstayError,
        BrokerUnreachable,
        DatabaseRefused,
        DatabaseUnreachable,
        ErrorCode,
        FilesUnreachable,
        HandlerError,
        IdempotencyConflict,
        NotAllowed,
        NotFound,
        OutcomeUnknown,
        Permanent,
        ProviderHeld,
        RequestsRefused,
        RowsFailed,
        SchemaBehind,
        SchemaNewer,
        Skip,
        Throttled,
        Transient,
        UsageError,
        WaitTimeout,
    )
    from backstay.core.failures import RetryPolicy
    from backstay.core.limits import Limits
    from backstay.core.states import ItemState, JobState
    from backstay.engine.tick import TickReport
    from backstay.handlers.function import TaskAnswer, done, gone_wrong, running
    from backstay.handlers.handler import Context
    from backstay.rows.answers import Answer, AnswerError, MapSummary, TokensUsed
    from backstay.rows.mapping import Plan, amap, imap, map, plan, run_file
    from backstay.rows.prompts import File, Image, Jinja
    from backstay.rows.results import Results
    from backstay.store.job_views import JobView
    from backstay.store.schedules import Schedule
    from backstay.sync import SyncBackstay, SyncJob

_HOMES = {
    "Backstay": "app",
    "Job": "client",
    "JobView": "store.job_views",
    "Result": "client",
    "BreakerPolicy": "core.breaker",
    "Limits": "core.limits",
    "RetryPolicy": "core.failures",
    "ItemState": "core.states",
    "JobState": "core.states",
    "Schedule": "store.schedules",
    "TickReport": "engine.tick",
    "SyncBackstay": "sync",
    "SyncJob": "sync",
    "Context": "handlers.handler",
    "TaskAnswer": "handlers.function",
    "done": "handlers.function",
    "gone_wrong": "handlers.function",
    "running": "handlers.function",
    **dict.fromkeys(("Plan", "amap", "imap", "map", "plan", "run_file"), "rows.mapping"),
    **dict.fromkeys(("File", "Image", "Jinja"), "rows.prompts"),
    **dict.fromkeys(("Answer", "AnswerError", "MapSummary", "TokensUsed"), "rows.answers"),
    "Results": "rows.results",
}


def __getattr__(name: str) -> Any:
    """Loads a public name at its first use, so that `backstay --version` need not load the engine."""
    if name not in __all__:
        raise AttributeError(f"module 'backstay' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"backstay.{_HOMES.get(name, 'core.errors')}"), name)
