"""Traces: submit, claim, call and settle are one, across processes and brokers, and hold nothing that is secret."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backstay import settings, wiring
from backstay.core.errors import UsageError
from backstay.core.ids import item_id
from backstay.observe.bus import Bus
from backstay.observe.tracing import ITEMS_ALWAYS, is_traced, read_parent
from tests.cli.shell import Shell, eventually
from tests.messaging.remote_rig import message_work
from tests.observe.otlp import Collector, Seen, collector
from tests.servers.postgres import free_port
from tests.servers.rabbitmq import PrivateRabbitMQ

PRODUCER, CONSUMER, CLIENT = 4, 5, 3


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collector() as made:
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield made


def submitted(shell: Shell, handler: str, items: int, **environment: str) -> int:
    """In a process of its own."""
    file = shell.file("".join(f"{n}\n" for n in range(1, items + 1)))
    ran = shell.process("submit", file, "--app", "shop:backstay", "--handler", handler, "--json", **environment)
    assert ran.code == 0, ran.err
    job: int = ran.json["job"]
    return job


def worked(shell: Shell, job: int, *options: str, **environment: str) -> str:
    """By a worker in another process, which ends in order; returns what it said."""
    with shell.start("worker", "--app", "shop:backstay", *options, **environment) as worker:
        eventually(lambda: shell("job", "show", job, "--json").json["finished_at"] is not None)
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        return worker.said


def ticked(shell: Shell, **environment: str) -> None:
    """By one invocation in another process."""
    ran = shell.process("tick", "--app", "shop:backstay", **environment)
    assert ran.code == 0, ran.err


def below(spans: list[Seen], parent: Seen) -> set[str]:
    return {span.name for span in spans if span.parent_id == parent.span_id}


@pytest.mark.slow
def test_submit_claim_call_and_settle_in_two_processes_are_one_trace(shell: Shell, receiver: Collector) -> None:
    job = submitted(shell, "picky", 3, **receiver.environment)
    worked(shell, job, **receiver.environment)
    spans = receiver.spans
    (sent,) = receiver.named("send picky")
    assert {span.trace_id for span in spans} == {sent.trace_id}
    assert (sent.kind, sent.parent_id, sent.attributes["messaging.batch.message_count"]) == (PRODUCER, "", 3)
    processed = receiver.named("process picky")
    assert [span.parent_id for span in processed] == [sent.span_id] * 3
    assert sorted(span.attributes["messaging.message.id"] for span in processed) == [f"{job}-{n}" for n in range(3)]
    for span in processed:
        assert (span.kind, below(spans, span)) == (CONSUMER, {"claim", "call acme", "settle"})
        assert sent.start <= span.start <= span.end
    states = {span.attributes["messaging.message.id"]: span.attributes["backstay.state"] for span in processed}
    assert states == {f"{job}-0": "succeeded", f"{job}-1": "succeeded", f"{job}-2": "failed"}
    assert [span.attributes["error.type"] for span in processed if span.failed] == ["UNKNOWN"]
    assert {span.service for span in spans} == {"backstay"}


@pytest.mark.slow
def test_over_rabbitmq_it_is_one_trace_too(
    sqlite_shell: Shell,
    receiver: Collector,
    rabbitmq: PrivateRabbitMQ,
) -> None:
    environment = {
        **receiver.environment,
        "BACKSTAY_BROKER_URL": rabbitmq.url,
        "BACKSTAY_BROKER_PREFIX": rabbitmq.prefix(),
    }
    with sqlite_shell.start("worker", "--app", "shop:backstay", **environment) as worker:
        eventually(lambda: "broker connected" in worker.said)
        job = submitted(sqlite_shell, "echo", 2, **environment)
        eventually(lambda: sqlite_shell("job", "show", job, "--json").json["finished_at"] is not None)
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    (sent,) = receiver.named("send echo")
    assert [span.trace_id for span in receiver.named("process echo")] == [sent.trace_id] * 2


async def test_a_remote_worker_is_told_the_trace_in_the_headers_of_its_message(
    sqlite_file_url: str,
    tmp_path: Path,
    rabbitmq: PrivateRabbitMQ,
    receiver: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in receiver.environment.items():
        monkeypatch.setenv(name, value)
    async with message_work(sqlite_file_url, tmp_path / "data", rabbitmq) as remote:
        asked = await remote.ask()
        await remote.told(asked, status="succeeded", result={"ok": True})
        await remote.ended("succeeded")
        told = str(asked.message.headers["traceparent"])
    version, trace_id, span_id, flags = told.split("-")
    assert (version, flags) == ("00", "01")
    (call,) = [span for span in receiver.named("call remote") if span.span_id == span_id]
    assert call.trace_id == trace_id
    assert (call.kind, call.attributes["messaging.system"]) == (CLIENT, "rabbitmq")
    assert call.attributes["messaging.destination.name"] == remote.worker.exchange
    (sent,) = receiver.named("send remote")
    assert sent.trace_id == trace_id


@pytest.mark.slow
def test_a_job_that_was_submitted_untraced_has_one_trace_all_the_same(sqlite_shell: Shell, receiver: Collector) -> None:
    sqlite_shell.submit("echo", 1, 2, 3)
    ticked(sqlite_shell, **receiver.environment)
    assert len(receiver.named("process echo")) == 3
    assert len({span.trace_id for span in receiver.named("process echo")}) == 1


@pytest.mark.slow
def test_of_a_large_job_only_the_first_items_and_a_share_are_traced(sqlite_shell: Shell, receiver: Collector) -> None:
    sqlite_shell.submit("echo", *range(400))
    ticked(sqlite_shell, **receiver.environment, BACKSTAY_OTEL_ITEMS_SHARE="0")
    assert len(receiver.named("process echo")) == ITEMS_ALWAYS
    parent = read_parent(f"00-{'ab' * 16}-{'cd' * 8}-01")
    assert 850 < sum(is_traced(item_id(1, n), parent, 0.01) for n in range(100_000)) < 1_200
    assert not is_traced(item_id(1, 0), read_parent(f"00-{'ab' * 16}-{'cd' * 8}-00"), 1.0)


@pytest.mark.slow
def test_what_the_sampler_leaves_out_is_left_out_by_everybody(sqlite_shell: Shell, receiver: Collector) -> None:
    submitted(sqlite_shell, "echo", 3, **receiver.environment, OTEL_TRACES_SAMPLER="parentbased_always_off")
    ticked(sqlite_shell, **receiver.environment)
    assert receiver.spans == []


@pytest.mark.slow
def test_with_the_collector_away_work_goes_on_and_it_is_told(sqlite_shell: Shell) -> None:
    away = {
        "BACKSTAY_OTEL": "1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
    }
    said = worked(sqlite_shell, submitted(sqlite_shell, "echo", 3, **away), **away)
    (told,) = [json.loads(line) for line in said.splitlines() if "the trace collector refuses spans" in line]
    assert (told["where"], told["level"]) == ("tracing", "warning")
    assert re.search("Traceback|opentelemetry", said) is None


def test_without_it_nothing_of_it_is_imported(sqlite_shell: Shell) -> None:
    code = "import sys; from backstay.cli.main import run; run(sys.argv[1:]); sys.exit('opentelemetry' in sys.modules)"
    file = sqlite_shell.file("1\n")
    command = [sys.executable, "-c", code, "submit", str(file), "--app", "shop:backstay", "--handler", "echo"]
    assert subprocess.run(command, env=sqlite_shell.environment(), check=False).returncode == 0


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(UsageError, match="tracing needs packages that are not installed") as error:
        wiring.start_tracing(settings.load({"otel": True}, {}), Bus())
    assert error.value.hint == "pip install 'backstay[otel]'"
