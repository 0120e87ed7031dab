"""Words every event as a structured log line: JSON off a terminal, columns on one. Never payloads or results."""

import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import Any, TextIO, assert_never

import structlog

from backstay.core.alarms import AlarmReading
from backstay.core.breaker import BreakerState
from backstay.core.events import (
    AlarmChanged,
    BreakerChanged,
    BrokerConnected,
    BrokerLost,
    BrokerWiped,
    DeadMessagesDropped,
    Event,
    ItemLogged,
    ItemsClaimed,
    ItemsExpired,
    ItemsRescued,
    ItemsSettled,
    ItemsStopped,
    ItemsSubmitted,
    JobEnded,
    JobsPruned,
    JobsTimedOut,
    LeasesLost,
    LettersArchived,
    MessageSetAside,
    MessagesPublished,
    OutboxLag,
    TickEnded,
    Trouble,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from backstay.core.failures import one_line
from backstay.core.ids import job_of, show_item
from backstay.core.models import Act, Settlement
from backstay.core.states import ItemState, JobState

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
ITEMS_NAMED_MAX = 20
ERROR_LENGTH_MAX = 150
LAG_MS_MAX = 60_000  # messages that wait for longer are news

Say = Callable[..., Any]


class Logs:
    """A listener. It looks at the level before it looks at items, because they come by the thousand."""

    def __init__(self, stream: TextIO, level: str = "info", as_json: bool | None = None, colours: bool = False) -> None:
        """JSON unless the stream is a terminal, or as `as_json` says."""
        self._level = LEVELS[level]
        wants_json = as_json if as_json is not None else not stream.isatty()
        last: Any = structlog.processors.JSONRenderer(default=str)
        self._log = _logger(Sink(stream), self._level, last if wants_json else _console(colours))

    def __call__(self, event: Event) -> None:
        say = self._log
        match event:
            case ItemsSettled():
                self._log_settled(event)
            case ItemsClaimed():
                say.debug("items claimed", worker=event.worker, items=event.items, named=event.named)
            case ItemsSubmitted():
                say.info("items submitted", job=event.job_id, handler=event.handler, items=event.items)
            case ItemLogged():
                say.info("item log", **_ids_of(event.item_id), text=event.text)
            case LeasesLost():
                items = [show_item(item) for item in event.items[:ITEMS_NAMED_MAX]]
                say.warning("leases lost", worker=event.worker, items=len(event.items), some=items)
            case ItemsRescued():
                say.info("items rescued", worker=event.worker, handler=event.handler, items=event.items)
            case ItemsExpired() | ItemsStopped() | JobEnded() | JobsTimedOut():
                self._log_ended(event)
            case BreakerChanged():
                self._log_breaker(event)
            case Trouble():
                say.warning("trouble", where=event.where, message=event.message)
            case BrokerConnected() | BrokerLost() | BrokerWiped() | MessageSetAside() | DeadMessagesDropped():
                self._log_broker(event)
            case MessagesPublished() | OutboxLag():
                self._log_outbox(event)
            case LettersArchived() | JobsPruned() | AlarmChanged():
                self._log_upkeep(event)
            case TickEnded():
                took = round(event.seconds * 1000)
                say.info(
                    "tick ended", depth=event.depth, items=event.items, duration_ms=took, follow_up=event.follow_up
                )
            case WorkerStarted() | WorkerStopping() | WorkerStopped():
                self._log_worker(event)
            case _:
                assert_never(event)

    def _log_ended(self, event: ItemsExpired | ItemsStopped | JobEnded | JobsTimedOut) -> None:
        say = self._log
        match event:
            case ItemsExpired():
                say.warning("items past their deadline", items=event.items, status="failed", error_code="GW_TIMEOUT")
            case ItemsStopped():
                stopped = say.warning if event.state is ItemState.FAILED else say.info
                stopped("items ended with their job", job=event.job_id, items=event.items, status=event.state.value)
            case JobEnded():
                ended = say.warning if event.state is JobState.FAILED else say.info
                ended("job ended", job=event.job_id, status=event.state.value)
            case JobsTimedOut():
                say.warning("jobs exceeded their maximum runtime", jobs=list(event.jobs))

    def _log_worker(self, event: WorkerStarted | WorkerStopping | WorkerStopped) -> None:
        say = self._log
        match event:
            case WorkerStarted():
                say.info("worker started", worker=event.worker, handlers=list(event.handlers))
            case WorkerStopping():
                say.info("worker stopping", worker=event.worker, running=event.running)
            case WorkerStopped():
                say.info("worker stopped", worker=event.worker, handed_back=event.handed_back)
            case _:
                assert_never(event)

    def _log_broker(
        self, event: BrokerConnected | BrokerLost | BrokerWiped | MessageSetAside | DeadMessagesDropped
    ) -> None:
        say = self._log
        match event:
            case BrokerConnected():
                say.info("broker connected", role=event.role)
            case BrokerLost():
                again = round(event.again_seconds, 1)
                say.warning("broker disconnected", role=event.role, why=event.reason, again_seconds=again)
            case BrokerWiped():
                say.warning("broker lost its data", then="all ready items are published again")
            case MessageSetAside():
                say.warning("message moved to the dead queue", queue=event.queue, why=event.reason)
            case DeadMessagesDropped():
                say.warning("dead messages dropped", queue=event.queue, messages=event.messages, bound=event.bound)

    def _log_outbox(self, event: MessagesPublished | OutboxLag) -> None:
        match event:
            case MessagesPublished():
                say = self._log.warning if event.failed else self._log.debug
                say("messages published", sink=event.sink, messages=event.messages, failed=event.failed)
            case OutboxLag():
                say = self._log.debug if event.age_ms < LAG_MS_MAX else self._log.warning
                say("messages waiting", sink=event.sink, messages=event.messages, oldest_ms=event.age_ms)
            case _:
                assert_never(event)

    def _log_upkeep(self, event: LettersArchived | JobsPruned | AlarmChanged) -> None:
        match event:
            case LettersArchived():
                self._log.info("dead letters archived", items=event.items)
            case JobsPruned():
                self._log.info("old jobs deleted", jobs=event.jobs, items=event.items, skipped=event.skipped)
            case AlarmChanged():
                self._log_alarm(event.reading)

    def _log_alarm(self, reading: AlarmReading) -> None:
        if reading.is_raised:
            self._log.warning("alarm raised", alarm=reading.alarm.value, why=reading.words)
        else:
            self._log.info("alarm is over", alarm=reading.alarm.value, value=reading.value, bound=reading.bound)

    def _log_breaker(self, event: BreakerChanged) -> None:
        before, after = event.before, event.after
        calm = after.state in (BreakerState.CLOSED, BreakerState.HALF_OPEN)
        say = self._log.info if calm else self._log.warning
        say(
            "breaker changed",
            provider=after.provider,
            breaker=after.state.value,
            was=before.state.value,
            why=after.reason,
        )

    def _log_settled(self, event: ItemsSettled) -> None:
        if self._level > logging.WARNING:
            return
        told: Iterable[Settlement] = event.settlements
        if self._level > logging.DEBUG:
            told = [settlement for settlement in told if settlement.state not in _CALM]
        breaker = ""
        for settlement in told:
            breaker = breaker or show_breakers(event.breakers)
            say, words = self._words(settlement)
            say(words, **_settlement(settlement), breaker=breaker)

    def _words(self, settlement: Settlement) -> tuple[Say, str]:
        match settlement.state:
            case ItemState.SUCCEEDED | ItemState.SKIPPED | ItemState.CANCELLED:
                return self._log.debug, f"item {settlement.state.value}"
            case ItemState.FAILED:
                return self._log.warning, "item failed"
            case ItemState.PROCESSING:
                return self._log.debug, "item at the provider"
            case ItemState.SUBMITTING:
                return self._log.info, "item outcome to be looked up"
            case ItemState.QUEUED:
                return self._log.info, _queued_words(settlement.act)
            case _:
                assert_never(settlement.state)


_CALM = frozenset({ItemState.SUCCEEDED, ItemState.SKIPPED, ItemState.CANCELLED, ItemState.PROCESSING})


def _queued_words(act: Act | None) -> str:
    match act:
        case Act.HANDED_BACK:
            return "item returned to the queue"
        case Act.RESCUED:
            return "item rescued"
        case Act.REPEAT:
            return "item to be sent again"
        case Act.FALLBACK:
            return "item goes to its fallback handler"
        case None:
            return "item to be retried"
        case _:
            assert_never(act)


def show_breakers(breakers: dict[str, str]) -> str:
    """Which breakers are not closed; a settlement does not say which provider it called."""
    troubled = [f"{name}:{state}" for name, state in sorted(breakers.items()) if state != BreakerState.CLOSED]
    return " ".join(troubled) or BreakerState.CLOSED.value


def _ids_of(item_id: int) -> dict[str, Any]:
    return {"job": job_of(item_id), "item": show_item(item_id)}


def _settlement(settlement: Settlement) -> dict[str, Any]:
    attempt = settlement.attempt
    return {
        **_ids_of(settlement.id),
        "status": settlement.state.value,
        "attempt": attempt.number if attempt else settlement.attempt_count,
        "duration_ms": attempt.ended_at - attempt.started_at if attempt else None,
        "provider_status": attempt.provider_status if attempt else None,
        "error_code": settlement.error_code,
        **({"retry_in_ms": settlement.delay_ms} if settlement.state is ItemState.QUEUED else {}),
    }


class LibraryLog(logging.Handler):
    """Reports what libraries log, if the program has not set up logging: in one line each, without a traceback."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        if sys.is_finalizing():
            return  # at the end of the process libraries complain about what was left open
        words = record.getMessage().strip().partition("\n")[0]
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            words = f"{words}: {type(error).__name__}: {one_line(str(error), ERROR_LENGTH_MAX)}{_place(error)}"
        self._tell(Trouble(record.name, words))


def _place(error: BaseException) -> str:
    """Where it was raised."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "" if at is None else f" ({PurePath(at.tb_frame.f_code.co_filename).name}, line {at.tb_lineno})"


class Sink:
    """Where lines go. A log that cannot be written any more must not stop work that is paid for."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost = 0

    def msg(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # a closed pipe, a full disk, a closed file
            self.lost += 1

    debug = info = warning = error = msg


def _console(colours: bool) -> Any:
    return structlog.dev.ConsoleRenderer(colors=colours)


def _logger(sink: Sink, level: int, last: Any) -> Any:
    """A logger of our own: the application's structlog settings are not touched."""
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    return structlog.wrap_logger(
        sink,
        processors=[structlog.processors.add_log_level, stamp, last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
