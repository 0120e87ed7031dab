"""`backstay broker show|declare|off`, and `--broker` wherever it is taken, with a real RabbitMQ."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from backstay import Backstay
from backstay.cli import worker
from backstay.cli.doctor import Level
from backstay.cli.doctor.database import judge_lag
from backstay.engine.worker import Orders, Supervisor
from backstay.messaging.messages import Topology
from backstay.store.outbox import Lag
from tests.cli.shell import ROOT, Shell, eventually
from tests.servers.rabbitmq import PrivateRabbitMQ

AWAY = "amqp://someone:canary@127.0.0.1:1/"


@pytest.fixture
def topology(rabbitmq: PrivateRabbitMQ, monkeypatch: pytest.MonkeyPatch) -> Topology:
    prefix = rabbitmq.prefix()
    monkeypatch.setenv("BACKSTAY_BROKER_PREFIX", prefix)
    monkeypatch.setenv("BACKSTAY_BROKER_URL", rabbitmq.url)
    return Topology(prefix)


def test_before_anything_is_declared_all_of_it_is_missing(sqlite_shell: Shell, topology: Topology):
    seen = sqlite_shell("broker", "show", "--json").json
    assert seen["reachable"] is True
    assert seen["on"] is False
    assert {problem["problem"] for problem in seen["problems"]} == {"missing"}
    assert topology.work in {problem["name"] for problem in seen["problems"]}


def test_what_was_declared_is_shown_with_its_messages_and_consumers(sqlite_shell: Shell, topology: Topology):
    sqlite_shell.submit("echo", 1, 2)
    assert sqlite_shell("broker", "declare").code == 0
    ran = sqlite_shell("broker", "show")
    seen = sqlite_shell("broker", "show", "--json").json
    found = {(one["kind"], one["name"]): one for one in seen["found"]}
    queue = found["queue", topology.work_queue("echo").name]  # for it has unfinished work
    assert (queue["messages"], queue["consumers"]) == (0, 0)
    assert seen["problems"] == []
    assert ran.code == 0
    assert f"10 priorities, dead letters to {topology.dead}" in ran.out
    assert f"300 s, then to {topology.work}" in ran.out
    assert f"topic, unrouted messages to {topology.unrouted}" in ran.out
    assert "at most 100,000 messages for 259,200 s" in ran.out
    assert "the newest 100,000 messages, for 14 days" in ran.out
    assert (seen["dead_messages_max"], seen["dead_days_max"]) == (100_000, 14)
    assert queue["arguments"]["x-max-priority"] == 10
    assert seen["prefetch_max"] == 100
    assert "guest" not in ran.out + ran.err


def test_what_is_there_with_other_arguments_is_told_of(
    sqlite_shell: Shell, topology: Topology, monkeypatch: pytest.MonkeyPatch
):
    assert sqlite_shell("broker", "declare").code == 0
    monkeypatch.setenv("BACKSTAY_BROKER_QUEUES", "quorum")
    ran = sqlite_shell("broker", "declare")
    assert ran.code == 1
    assert f"{topology.dead} differs from the present declaration" in ran.err
    problems = sqlite_shell("broker", "show", "--json").json["problems"]
    assert topology.dead in {problem["name"] for problem in problems}


@pytest.mark.parametrize("command", [("show",), ("declare",)])
def test_with_the_broker_away_it_says_so_and_ends_with_8(sqlite_shell: Shell, command: tuple[str, ...]):
    sqlite_shell.submit("echo", 1)
    ran = sqlite_shell("broker", *command, "--broker", AWAY)
    assert ran.code == 8
    assert "the broker at amqp://127.0.0.1:1/ cannot be reached" in ran.err
    assert "canary" not in ran.out + ran.err


def test_show_knows_what_the_database_says_though_the_broker_is_away(sqlite_shell: Shell):
    sqlite_shell.submit("echo", 1)
    seen = sqlite_shell("broker", "show", "--broker", AWAY, "--json")
    assert seen.code == 8
    assert (seen.json["reachable"], seen.json["on"], seen.json["found"]) == (False, False, [])


async def publish(url: str) -> tuple[str, ...]:
    async with Backstay(url) as app:
        return await app.publish("orders.created", 1)


@pytest.mark.slow
def test_off_closes_the_sink_and_drops_what_has_not_left(shell: Shell):
    shell.submit("echo", 1)
    with shell.start("worker", "--app", "shop:backstay", "--broker", AWAY) as running:
        eventually(lambda: shell("broker", "show", "--broker", AWAY, "--json").json["on"])
        running.send(signal.SIGTERM)
        assert running.wait() == 0
        assert "canary" not in running.said
    shell.submit("echo", *range(120))
    assert shell("broker", "show", "--broker", AWAY, "--json").json["pending"] == 3
    published = asyncio.run(publish(shell.url))
    assert "outbox: 3 hints not published, the oldest for" in (said := shell("doctor").out)
    assert "1 message not published" in said
    ran = shell("broker", "off")
    assert (ran.code, ran.err.strip()) == (0, "off: 3 hints and 1 message that you published dropped")
    assert (published, asyncio.run(publish(shell.url))) == (("messages",), ())
    shell.submit("echo", 1)
    seen = shell("broker", "show", "--broker", AWAY, "--json").json
    assert (seen["on"], seen["pending"]) == (False, 0)
    assert " hints " not in shell("doctor").out


def test_doctor_finds_hints_that_do_not_leave():
    assert judge_lag(Lag(0, 0), "hint", "mend it").level is Level.OK
    assert judge_lag(Lag(3, 59_000), "hint", "mend it").level is Level.OK
    late = judge_lag(Lag(3, 61_000), "hint", "mend it")
    assert late == (Level.FAIL, "3 hints not published, the oldest for 61 s", "mend it")


@pytest.mark.parametrize("url", ["http://broker", "amqp://me:se#cret@host/", "amqp://me:se/cret@host/", "canary"])
@pytest.mark.parametrize("command", [("broker", "show"), ("worker", "--app", "shop:backstay"), ("serve",)])
def test_a_url_that_cannot_be_read_is_refused_and_not_repeated(sqlite_shell: Shell, command: tuple[str, ...], url: str):
    sqlite_shell.submit("echo", 1)
    ran = sqlite_shell(*command, "--broker", url)
    assert ran.code == 2
    assert ran.err.startswith("backstay: error: the broker's URL is not valid. write amqp://")
    assert url not in ran.err
    assert "cret" not in ran.err


def test_without_the_extra_it_says_what_to_install(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch):
    sqlite_shell.submit("echo", 1)
    monkeypatch.setattr("backstay.messaging.connection.find_spec", lambda name: None)
    ran = sqlite_shell("worker", "--app", "shop:backstay", "--broker", AWAY)
    assert ran.code == 2
    assert ran.said == ["backstay: error: RabbitMQ needs aio-pika. pip install 'backstay[rabbitmq]'."]


def test_worker_processes_are_told_of_the_broker_by_their_environment(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch
):
    given: list[Orders] = []

    async def run(self: Supervisor) -> int:
        given.append(self._orders)
        return 0

    monkeypatch.setattr(Supervisor, "run", run)
    sqlite_shell.submit("echo", 1)
    ran = sqlite_shell("worker", "--app", "shop:backstay", "--processes", "2", "--broker", AWAY)
    (orders,) = given
    assert ran.code == 0
    assert "canary" not in " ".join(orders.command)
    assert orders.environment[worker.CHILD_BROKER] == AWAY
    assert AWAY not in os.environ.values()


def test_the_driver_is_not_loaded_before_it_is_needed():
    modules = "sys, backstay.cli.main, backstay.cli.broker, backstay.messaging.broker_session"
    code = f"import {modules}; print('aio_pika' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
