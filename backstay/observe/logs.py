"""Words every event as a structured log line: JSON off a terminal, columns on one. Never payloads or results.

And `ItemLogs`, the execution log of each item: the log output of its handler, stored in pieces among the artifacts. A
piece is put when an item's run has ended, and now and then while it runs, so that a long one can be followed. The
memory for logs is limited, and the work never waits for it: the rest is left out, and the log says so.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, Final, Protocol, TextIO, assert_never

import structlog

from backstay.clock import Clock, Tasks, new_id, wait_for_event
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
from backstay.core.ids import job_of, position_of, show_item
from backstay.core.models import Act, Settlement
from backstay.core.states import ItemState, JobState
from backstay.observe.bus import Bus

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


LINGER_SECONDS: Final = 5.0  # a line of a running item can be read at most so much later
ITEM_BYTES_MAX: Final = 1 << 20  # of one piece
MEMORY_BYTES_MAX: Final = 16 << 20
PUTS_AT_ONCE: Final = 8
LEFT_OUT: Final = "… the rest of the log is left out\n"


class Keeper(Protocol):
    """Where pieces go; `backstay.artifacts.Artifacts` is one."""

    async def put(self, name: str, chunks: AsyncIterable[bytes]) -> int: ...


def place_of(item_id: int) -> str:
    """The prefix of the names of an item's pieces; they sort by time."""
    return f"logs/{job_of(item_id)}/{position_of(item_id)}"


class ItemLogs:
    """A listener. `async with ItemLogs(…)` while work runs; at the end the rest is stored."""

    def __init__(self, keeper: Keeper, clock: Clock, bus: Bus) -> None:
        self._keeper = keeper
        self._clock = clock
        self._bus = bus
        self._lines: dict[int, list[str]] = {}
        self._sizes: dict[int, int] = {}
        self._size = 0
        self._ended: dict[int, None] = {}  # items with a piece to put now, in their order
        self._wake = asyncio.Event()
        self._stopping = False
        self._pieces = 0
        self._life = new_id()[:8]
        self._tasks = Tasks()

    async def __aenter__(self) -> "ItemLogs":
        self._bus.subscribe(self)
        self._putting = self._tasks.spawn(self._put_on(), "item-logs")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._stopping = True
        self._wake.set()
        await self._putting
        self._bus.unsubscribe(self)

    def __call__(self, event: Event) -> None:
        match event:
            case ItemLogged() if not self._stopping:
                self._say(event.item_id, event.text)
            case ItemsSettled() if self._lines:
                for settlement in event.settlements:
                    if settlement.id in self._lines:
                        self._end(settlement)
            case LeasesLost() if self._lines:
                for item_id in event.items:
                    if item_id in self._lines:
                        self._say(item_id, "the lease was lost: the result of this attempt does not count")
                        self._ended[item_id] = None
                        self._wake.set()
            case _:
                pass

    def _end(self, settlement: Settlement) -> None:
        attempt = settlement.attempt
        took = f" after {attempt.ended_at - attempt.started_at} ms" if attempt else ""
        code = f", {settlement.error_code}" if settlement.error_code else ""
        why = f": {attempt.message}" if attempt and attempt.message else ""
        self._say(settlement.id, f"[{settlement.state.value}{code}{took}]{why}")
        self._ended[settlement.id] = None
        self._wake.set()

    def _say(self, item_id: int, text: str) -> None:
        moment = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        line = f"{moment.removesuffix('+00:00')}Z {text}\n"
        size, given = self._sizes.get(item_id, 0), len(line.encode())
        if size > ITEM_BYTES_MAX or self._size > MEMORY_BYTES_MAX:
            if size and self._lines[item_id][-1] != LEFT_OUT:
                self._lines[item_id].append(LEFT_OUT)
            return
        self._lines.setdefault(item_id, []).append(line)
        self._sizes[item_id] = size + given
        self._size += given

    async def _put_on(self) -> None:
        whole_at = self._clock.monotonic()
        while not self._stopping:
            await wait_for_event(self._wake, LINGER_SECONDS)
            self._wake.clear()
            is_time = self._clock.monotonic() >= whole_at + LINGER_SECONDS
            await self._put_all(list(self._lines if is_time else self._ended))
            whole_at = self._clock.monotonic() if is_time else whole_at
        await self._put_all(list(self._lines))

    async def _put_all(self, items: list[int]) -> None:
        """A few at a time. A place that does not answer is reported once, not for every item."""
        for start in range(0, len(items), PUTS_AT_ONCE):
            some = [self._tasks.spawn(self._put(item)) for item in items[start : start + PUTS_AT_ONCE]]
            failed = [error for error in await asyncio.gather(*some, return_exceptions=True) if error is not None]
            if failed:
                self._bus.emit(Trouble("item logs", f"{type(failed[0]).__name__}: {failed[0]}"))
                return

    async def _put(self, item_id: int) -> None:
        self._ended.pop(item_id, None)
        lines, size = self._lines.pop(item_id, []), self._sizes.pop(item_id, 0)
        if not lines:
            return
        self._pieces += 1
        # The time keeps pieces of all writers in order; the rest of the name keeps pieces of one moment apart.
        name = f"{self._clock.now_ms():015d}-{self._pieces:09d}-{self._life}"
        try:
            await self._keeper.put(f"{place_of(item_id)}/{name}", _whole(lines))
            self._size -= size
        except BaseException:
            self._lines[item_id] = lines + self._lines.get(item_id, [])  # it is tried again with the next
            self._sizes[item_id] = size + self._sizes.get(item_id, 0)
            raise


async def _whole(lines: list[str]) -> AsyncIterator[bytes]:
    yield "".join(lines).encode()
