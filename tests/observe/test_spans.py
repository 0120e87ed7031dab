"""Single spans: what handlers draw is below the call, tries and tasks are in one trace, and nothing is left open."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from backstay import Backstay, Transient
from backstay.clock import Clock
from backstay.core.failures import RetryPolicy
from backstay.engine.parts import drop_lost_items
from backstay.engine.worker import Worker
from backstay.handlers.function import done
from backstay.observe.tracing import Tracing
from tests.server.remote_rig import remote_work
from tests.server.rig import rigged

AT_ONCE = RetryPolicy("at once", attempts_max=3, base_ms=1, factor=1, cap_ms=1)


def exporting() -> tuple[InMemorySpanExporter, TracerProvider]:
    """A tracer provider, and where its spans go."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter, provider


def tracing(provider: TracerProvider) -> Tracing:
    return Tracing(provider, Clock(), share=0.0, outside=False)


class Drawn:
    """An application that is traced, with its own tracer provider."""

    def __init__(self, url: str) -> None:
        self.exporter, self.provider = exporting()
        self.app = Backstay(url)
        self.app.bus.tracing = tracing(self.provider)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    async def done(self, handler: str, *items: Any) -> None:
        job = await self.app.submit(handler, list(items))
        async with self.app.working():
            await job.wait(timeout_seconds=30)

    @asynccontextmanager
    async def endless(self) -> AsyncIterator[Worker]:
        """A worker with a call under way that does not end by itself."""
        begun = asyncio.Event()

        @self.app.handler()
        async def endless(item: Any) -> None:
            begun.set()
            await asyncio.Event().wait()

        await self.app.submit("endless", [1])
        async with self.app.working() as worker:
            await begun.wait()
            yield worker

    def assert_all_closed(self) -> None:
        assert self.app.bus.tracing is not None
        assert self.app.bus.tracing.open_items == 0
        assert len(self.named("process endless")) == 1


@pytest.fixture
async def drawn(sqlite_file_url: str) -> AsyncIterator[Drawn]:
    made = Drawn(sqlite_file_url)
    yield made
    await made.app.close()


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


async def test_what_a_handler_draws_is_below_its_call_and_it_knows_the_traceparent(drawn: Drawn) -> None:
    told: list[str | None] = []

    @drawn.app.handler()
    def work(item: Any, context: Any) -> None:
        told.extend((context.traceparent, context.outside_traceparent))
        drawn.provider.get_tracer("mine").start_span("inner").end()

    await drawn.done("work", 1)
    (inner,), (call,) = drawn.named("inner"), drawn.named("call work")
    assert inner.parent is not None
    assert call.context is not None
    assert inner.parent.span_id == call.context.span_id
    assert told == [f"00-{call.context.trace_id:032x}-{call.context.span_id:016x}-01", None]


async def test_every_try_is_in_the_trace_of_its_submit(drawn: Drawn) -> None:
    tries: list[int] = []

    @drawn.app.handler(retry=AT_ONCE)
    async def flaky(item: Any, context: Any) -> None:
        tries.append(context.attempt)
        if context.attempt == 1:
            raise Transient("canary: not yet")

    with drawn.provider.get_tracer("mine").start_as_current_span("request") as outer:
        await drawn.done("flaky", 1)
    spans = drawn.exporter.get_finished_spans()
    assert {trace_of(span) for span in spans} == {outer.get_span_context().trace_id}
    assert [span.attributes["backstay.state"] for span in drawn.named("process flaky") if span.attributes] == [
        "queued",
        "succeeded",
    ]
    assert "canary" not in "".join(span.to_json() for span in spans)
    assert tries == [1, 2]


@pytest.mark.slow
async def test_a_provider_s_task_is_drawn_when_it_is_submitted_and_when_it_has_ended(drawn: Drawn) -> None:
    @drawn.app.task("render")
    class Render:
        async def submit(self, item: Any) -> str:
            return "task-1"

        async def poll(self, task_ids: Any) -> Any:
            return {task: done("drawn") for task in task_ids}

    await drawn.done("render", 1)
    processed = drawn.named("process render")
    states = [span.attributes["backstay.state"] for span in processed if span.attributes]
    assert states == ["processing", "succeeded"]
    assert len({trace_of(span) for span in processed}) == 1


async def test_what_is_cut_off_at_the_end_leaves_no_span_open(drawn: Drawn) -> None:
    async with drawn.endless() as worker:
        worker.stop_now()
    await drawn.app.close()
    drawn.assert_all_closed()


async def test_a_call_whose_lease_is_lost_leaves_no_span_open(drawn: Drawn) -> None:
    async with drawn.endless() as worker:
        engine = worker.engine
        (flight,) = engine.flights.all()
        drop_lost_items({(flight.item.id, flight.item.fence)}, engine.flights, engine.parts)
        assert flight.task is not None
        await asyncio.wait([flight.task])
        drawn.assert_all_closed()


async def test_a_submit_that_broke_off_is_drawn_as_failed(drawn: Drawn) -> None:
    @drawn.app.handler()
    async def echo(item: Any) -> Any:
        return item

    def items() -> Any:
        yield 1
        raise RuntimeError("canary")

    with pytest.raises(RuntimeError):
        await drawn.app.submit("echo", items())
    (sent,) = drawn.named("send echo")
    assert sent.status.status_code is trace.StatusCode.ERROR
    assert "canary" not in sent.to_json()


async def test_a_remote_worker_is_told_the_trace_over_http(sqlite_file_url: str, tmp_path: Path) -> None:
    async with remote_work(sqlite_file_url, tmp_path / "data") as remote:
        remote.rig.made.bus.tracing = tracing(TracerProvider())
        await remote.send()
        told = remote.receiver.visits[0].headers["traceparent"]
    version, trace_id, span_id, flags = told.split("-")
    assert (version, len(trace_id), len(span_id), flags) == ("00", 32, 16, "01")


async def test_addresses_that_the_service_is_asked_at_are_in_no_span(
    sqlite_file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that an answer comes in at is a secret, and the web framework would draw spans with them."""
    exporter, provider = exporting()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # as a process has it once it is traced
    async with remote_work(sqlite_file_url, tmp_path / "data") as remote:
        remote.rig.made.bus.tracing = tracing(provider)
        address = await remote.send()
        assert (await remote.say(address, status="succeeded", result=1)).status == 202
        assert (await remote.rig.ada.get("/api/jobs?label=canary")).status == 200
    spans = exporter.get_finished_spans()
    assert "send remote" in {span.name for span in spans}
    assert [span.name for span in spans if "http.route" in (span.attributes or {})] == []
    everything = " ".join(span.to_json() for span in spans)
    assert address.rpartition("/")[2] not in everything
    assert "canary" not in everything


@pytest.mark.parametrize("given", ["", "nonsense", f"00-{'a1' * 16}-{'b2' * 8}-01"])
async def test_a_submit_over_http_is_in_the_callers_trace_if_it_names_one(
    sqlite_file_url: str, tmp_path: Path, given: str
) -> None:
    exporter, provider = exporting()
    async with rigged(sqlite_file_url, tmp_path / "data") as rig:
        rig.made.bus.tracing = tracing(provider)
        asked = {"handler": "echo", "items": [1]}
        assert (await rig.ada.post("/api/jobs", json=asked, headers={"traceparent": given})).status == 201
    (sent,) = (span for span in exporter.get_finished_spans() if span.name == "send echo")
    named = None if sent.parent is None else f"00-{sent.parent.trace_id:032x}-{sent.parent.span_id:016x}-01"
    assert named == (given if given.startswith("00") else None)
