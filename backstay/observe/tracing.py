"""OpenTelemetry traces: submit, claim, call and settle of an item as one trace, whichever processes do them.

The context of a submit needs no column of its own: it is the job's seed, which every claim returns
anyway. Which items are traced follows from their ids, so all processes agree on it and on every try. Spans are made of
ids, names and figures; never of payloads, results or texts of a provider.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from backstay.clock import Clock
from backstay.core.ids import position_of, show_item
from backstay.core.models import Claimed, JobTerms, Settlement
from backstay.core.states import ItemState

ITEMS_ALWAYS: Final = 10  # the first of every job are traced, so that a small job is traced whole
SYSTEM: Final = "backstay"
_VERSION: Final = "00"


@runtime_checkable
class TracedHandler(Protocol):
    """A handler that can describe the call of an item, without secrets."""

    def trace_attributes(self, body: str) -> Mapping[str, str | int]: ...


class Traceparents(NamedTuple):
    """The W3C traceparent for remote workers, and the one for the provider, if the settings allow it."""

    inside: str | None = None
    outside: str | None = None


@dataclass(slots=True)
class TracedItem:
    """One claim of an item, from before it was claimed until it is settled."""

    process: Span
    call: Span | None = None
    call_ended: int | None = None  # nanoseconds


def read_parent(seed: str) -> SpanContext:
    """The submit's span, from the seed of its job. A job that was submitted without tracing has a trace of its own,
    whose id every process derives from the seed."""
    parts = seed.split("-")
    if len(parts) == 4 and [len(part) for part in parts] == [2, 32, 16, 2]:
        return SpanContext(int(parts[1], 16), int(parts[2], 16), True, TraceFlags(int(parts[3], 16)))
    digest = hashlib.sha256(f"trace\0{seed}".encode()).digest()
    return SpanContext(_number(digest[:16]), _number(digest[16:24]), True, TraceFlags(TraceFlags.SAMPLED))


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big") or 1


def traceparent(of: SpanContext, sampled: bool) -> str:
    return f"{_VERSION}-{of.trace_id:032x}-{of.span_id:016x}-{int(sampled):02x}"


def is_traced(item: int, parent: SpanContext, share: float) -> bool:
    """The first items of a job, and a share of the others; none when the submit itself was not sampled."""
    if not parent.trace_flags.sampled:
        return False
    return position_of(item) < ITEMS_ALWAYS or _draw(parent.trace_id, item) < share


def _draw(trace_id: int, item: int) -> float:
    digest = hashlib.blake2b(f"{trace_id}\0{item}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big") / (1 << 56)


class Tracing:
    """Records the spans of one process. Its memory is limited by the items that the process holds."""

    def __init__(self, provider: trace.TracerProvider, clock: Clock, share: float, outside: bool) -> None:
        """`share`: of the items after the first of each job. `outside`: calls to providers carry the traceparent."""
        self._tracer = provider.get_tracer(SYSTEM)
        self._provider = provider
        self._clock = clock
        self._share = share
        self._outside = outside
        self._open: dict[tuple[int, int], TracedItem] = {}

    @property
    def open_items(self) -> int:
        return len(self._open)

    def _now(self) -> int:
        return self._clock.now_ms() * 1_000_000

    # submit

    def trace_submit(self, handler: str) -> "SubmitSpan":
        """One span for all items of a submit, below whatever span the caller is in."""
        return SubmitSpan(
            self._tracer.start_span(
                f"send {handler}",
                kind=SpanKind.PRODUCER,
                attributes=_messaging("send", handler),
                start_time=self._now(),
            ),
            self._now,
        )

    @contextmanager
    def within_trace_of(self, headers: Mapping[str, str]) -> Iterator[None]:
        """Spans made meanwhile belong to the trace of the sender, if the headers name one."""
        token = contexts.attach(TraceContextTextMapPropagator().extract(headers))
        try:
            yield
        finally:
            contexts.detach(token)

    # claim, call, settle

    def record_claim(self, item: Claimed, job: JobTerms, seconds_ago: float) -> None:
        """The item was claimed by a statement that was sent `seconds_ago`."""
        parent = read_parent(job.ref_seed)
        if not is_traced(item.id, parent, self._share):
            return
        began = self._now() - int(seconds_ago * 1e9)
        attributes = {
            **_messaging("process", item.handler),
            "messaging.message.id": show_item(item.id),
            "backstay.job.id": item.job_id,
            "backstay.attempt": item.attempt_count + 1,
            "backstay.fence": item.fence,
        }
        process = self._tracer.start_span(
            f"process {item.handler}",
            _below(trace.NonRecordingSpan(parent)),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            start_time=began,
        )
        self._tracer.start_span("claim", _below(process), start_time=began).end(self._now())
        self._open[item.id, item.fence] = TracedItem(process)

    @contextmanager
    def calling(self, item: Claimed, job: JobTerms, provider: str, handler: object) -> Iterator[Traceparents]:
        """While the handler runs, its call's span is the current one: code that it calls may add spans below it."""
        traced = self._open.get((item.id, item.fence))
        if traced is None:
            yield self._traceparents(read_parent(job.ref_seed), False)
            return
        call = traced.call = self._call(traced, provider, item.body, handler)
        token = contexts.attach(_below(call))
        try:
            yield self._traceparents(call.get_span_context(), call.is_recording())
        finally:
            contexts.detach(token)
            traced.call_ended = self._now()

    def _call(self, traced: TracedItem, provider: str, body: str, handler: object) -> Span:
        said = dict(handler.trace_attributes(body)) if isinstance(handler, TracedHandler) else {}
        operation, model = said.get("gen_ai.operation.name"), said.get("gen_ai.request.model", "")
        return self._tracer.start_span(
            f"call {provider}" if operation is None else f"{operation} {model}".rstrip(),
            _below(traced.process),
            kind=SpanKind.CLIENT,
            attributes={"backstay.provider": provider, **said},
            start_time=self._now(),
        )

    def _traceparents(self, of: SpanContext, sampled: bool) -> Traceparents:
        named = traceparent(of, sampled)
        return Traceparents(named, named if self._outside else None)

    def record_settlements(
        self, ready: Iterable[tuple[Settlement, Claimed, JobTerms]], lost: Iterable[Settlement]
    ) -> None:
        """Ends the spans of settled items; of some the lease was lost."""
        gone = {(one.id, one.fence) for one in lost}
        for settlement, item, job in ready:
            key = (item.id, item.fence)
            if key not in self._open and _ends_a_task(settlement):
                self.record_claim(item, job, 0.0)  # found by a poll; it had no span while the provider worked on it
            traced = self._open.pop(key, None)
            if traced is not None:
                self._end(traced, settlement, key in gone)

    def record_drop(self, item: Claimed) -> None:
        """Ends the span of an item that this worker has lost."""
        traced = self._open.pop((item.id, item.fence), None)
        if traced is not None:
            self._end(traced, None, lost=True)

    def _end(self, traced: TracedItem, settlement: Settlement | None, lost: bool) -> None:
        now, attempt = self._now(), settlement.attempt if settlement is not None else None
        if traced.call is not None:
            if attempt is not None:
                traced.call.set_attributes(_figures(attempt))
                _mark_error(traced.call, attempt.error_code)
            traced.call.end(traced.call_ended or now)
        if settlement is not None:
            settle = self._tracer.start_span("settle", _below(traced.process), start_time=traced.call_ended or now)
            settle.set_attribute("backstay.state", settlement.state.value)
            settle.end(now)
            traced.process.set_attribute("backstay.state", settlement.state.value)
            _mark_error(traced.process, settlement.error_code)
        if lost:
            traced.process.set_attribute("backstay.lease_lost", True)
            _mark_error(traced.process, "lease_lost")
        traced.process.end(now)

    def close(self) -> None:
        """Ends what is open, and waits a moment until all is exported."""
        for traced in self._open.values():
            self._end(traced, None, lost=True)
        self._open.clear()
        flush = getattr(self._provider, "force_flush", None)
        if flush is not None:
            flush(5_000)


class SubmitSpan:
    """The span of a submit. Its traceparent is the job's seed: as unique as a random one, because span ids are."""

    def __init__(self, span: Span, now: Callable[[], int]) -> None:
        self._span = span
        self._now = now
        of = span.get_span_context()
        self.seed: str | None = traceparent(of, of.trace_flags.sampled)

    def record_submit(self, job_id: int, items: int) -> None:
        self._span.set_attributes({"backstay.job.id": job_id, "messaging.batch.message_count": items})
        self._span.end(self._now())

    def record_failure(self) -> None:
        _mark_error(self._span, "broke_off")
        self._span.end(self._now())


def _below(span: Span) -> contexts.Context:
    return trace.set_span_in_context(span, contexts.get_current())


def _messaging(operation: str, handler: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.type": operation,
        "messaging.operation.name": operation,
        "messaging.destination.name": handler,
    }


def _figures(attempt: Any) -> dict[str, Any]:
    named = {
        "gen_ai.usage.input_tokens": attempt.input_tokens,
        "gen_ai.usage.output_tokens": attempt.output_tokens,
        "http.response.status_code": attempt.provider_status,
        "backstay.cost_micros": attempt.cost_micros,
        "backstay.outcome": attempt.outcome,
    }
    return {name: value for name, value in named.items() if value is not None}


def _mark_error(span: Span, error: str | None) -> None:
    if error is not None:
        span.set_attribute("error.type", error)
        span.set_status(Status(StatusCode.ERROR))


def _ends_a_task(settlement: Settlement) -> bool:
    return settlement.was == ItemState.PROCESSING and settlement.state is not ItemState.PROCESSING


Tell = Callable[[str], None]

_SERVICE: Final = "service.name"


class ReportingExporter(SpanExporter):
    """An exporter that reports once when spans are refused, and once when they are accepted again."""

    def __init__(self, exporter: SpanExporter, tell: Tell) -> None:
        self._exporter = exporter
        self._tell = tell
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception:  # an error of a collector must not stop the work
            result = SpanExportResult.FAILURE
        failed = result is not SpanExportResult.SUCCESS
        if failed != self._failing:
            self._failing = failed
            self._tell(
                "the trace collector refuses spans; they are dropped"
                if failed
                else "the trace collector accepts spans again"
            )
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def provider_here(tell: Tell) -> trace.TracerProvider:
    """The application's own, if it has set one; else one of ours, which the whole process shares from then on."""
    found = trace.get_tracer_provider()
    if isinstance(found, TracerProvider):
        return found
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # errors that matter become events
    named = os.environ.get("OTEL_SERVICE_NAME") or _SERVICE in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    made = TracerProvider(resource=Resource.create({} if named else {_SERVICE: "backstay"}))
    made.add_span_processor(BatchSpanProcessor(ReportingExporter(OTLPSpanExporter(), tell)))
    trace.set_tracer_provider(made)
    return made
