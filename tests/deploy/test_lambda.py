"""The tick as a Lambda function, against PostgreSQL and SQLite, a practice provider and a stand-in of Invoke."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from typing import Any

import pytest

from backstay import wiring
from backstay.aws_lambda import FollowUpFailed, depth_of, handler, in_time
from backstay.core.errors import UsageError
from backstay.core.limits import Limits
from backstay.store.workers import RecentTicks
from tests.cli.conftest import folder, shell, sqlite_shell
from tests.cli.shell import Shell
from tests.deploy.chat import request_lines
from tests.deploy.invoke_api import InvokeApi, LambdaContext
from tests.stories.runs import Provider, paid_again, practice

__all__ = ["folder", "shell", "sqlite_shell"]  # pytest finds them by these names


NUMBERS = count(1)  # no two requests are alike, so what the one provider charges twice was sent twice


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with practice() as started:
        yield started


@pytest.fixture
def lambdas(monkeypatch: pytest.MonkeyPatch) -> Iterator[InvokeApi]:
    with InvokeApi().serving() as api:
        for name, value in {
            "AWS_ENDPOINT_URL_LAMBDA": api.url,
            "AWS_ACCESS_KEY_ID": "test-key",
            "AWS_SECRET_ACCESS_KEY": "test-secret",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "BACKSTAY_TICK_ITEMS_MAX": "10",
            "BACKSTAY_LOG_LEVEL": "warning",
        }.items():
            monkeypatch.setenv(name, value)
        yield api


def queue(shell: Shell, provider: Provider, wanted: int) -> int:
    """Queues LLM requests, which need no application."""
    file = shell.file(request_lines(islice(NUMBERS, wanted)), "requests.jsonl")
    ran = shell("submit", file, "--base-url", provider.base_url, "--price", "0.15/0.60", "--json")
    assert ran.code == 0, ran.err
    job_id: int = ran.json["job"]
    return job_id


def succeeded(shell: Shell, job_id: int) -> int:
    done: int = shell("job", "show", job_id, "--json").json["succeeded"]
    return done


async def lately(url: str) -> RecentTicks:
    store = await wiring.open_store(url)
    try:
        return await store.invocations.lately(3_600_000)
    finally:
        await store.close()


def test_a_chain_works_off_what_one_invocation_cannot(shell: Shell, lambdas: InvokeApi, provider: Provider) -> None:
    job_id = queue(shell, provider, 25)
    reports = lambdas.trigger()
    assert [(report["depth"], report["claimed"], report["follow_up"]) for report in reports] == [
        (0, 10, True),
        (1, 10, True),
        (2, 5, False),
    ]
    assert lambdas.asked == [{"chain_depth": 1}, {"chain_depth": 2}]
    assert (succeeded(shell, job_id), paid_again(provider.bill())) == (25, 0)


def test_a_chain_ends_at_its_longest_and_the_schedule_goes_on(
    shell: Shell, lambdas: InvokeApi, provider: Provider
) -> None:
    job_id = queue(shell, provider, 45)
    assert [report["claimed"] for report in lambdas.trigger()] == [10, 10, 10]
    assert succeeded(shell, job_id) == 30
    assert [report["claimed"] for report in lambdas.trigger()] == [10, 5]
    assert (succeeded(shell, job_id), paid_again(provider.bill())) == (45, 0)


def test_chains_at_the_same_time_do_no_harm(shell: Shell, lambdas: InvokeApi, provider: Provider) -> None:
    """A schedule may fire twice, and Lambda delivers an event at least once."""
    job_id = queue(shell, provider, 60)
    with ThreadPoolExecutor(2) as pool:
        chains = [pool.submit(handler, {"chain_depth": 1}, LambdaContext(600)) for _ in range(2)]
        claimed = [chain.result()["claimed"] for chain in chains]
    assert claimed == [10, 10]
    while lambdas.trigger({"chain_depth": 2})[-1]["pending"]:
        assert len(lambdas.asked) == 2
    assert (succeeded(shell, job_id), paid_again(provider.bill())) == (60, 0)


@pytest.mark.parametrize("refusal", [429, 500])
def test_a_follow_up_that_is_refused_is_an_error_of_the_function_and_loses_nothing(
    sqlite_shell: Shell, lambdas: InvokeApi, provider: Provider, refusal: int
) -> None:
    job_id = queue(sqlite_shell, provider, 15)
    lambdas.refusal = refusal
    with pytest.raises(FollowUpFailed, match="no follow-up of depth 1"):
        lambdas.trigger()
    assert (succeeded(sqlite_shell, job_id), lambdas.asked) == (10, [])
    assert asyncio.run(lately(sqlite_shell.url)) == RecentTicks(ticks=1, chains=1, chains_full=0, failed=1)
    lambdas.refusal = None
    lambdas.trigger()
    assert (succeeded(sqlite_shell, job_id), paid_again(provider.bill())) == (15, 0)


def test_an_api_that_is_away_is_the_same(
    sqlite_shell: Shell, lambdas: InvokeApi, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(sqlite_shell, provider, 15)
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:1")
    with pytest.raises(FollowUpFailed, match="Could not connect"):
        lambdas.trigger()


def test_a_warm_function_opens_everything_anew(
    sqlite_shell: Shell, lambdas: InvokeApi, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application and its module stay from one invocation to the next; connections do not."""
    monkeypatch.setenv("BACKSTAY_APP", "shop:backstay")
    for _ in range(2):
        own, requests = sqlite_shell.submit("echo", 1, 2), queue(sqlite_shell, provider, 3)
        lambdas.trigger()
        assert (succeeded(sqlite_shell, own), succeeded(sqlite_shell, requests)) == (2, 3)


@pytest.mark.slow
def test_it_stops_before_lambda_would_stop_it(
    sqlite_shell: Shell, lambdas: InvokeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKSTAY_APP", "shop:backstay")
    job_id = sqlite_shell.submit("slow", 1)
    (report, *_) = lambdas.trigger({"chain_depth": 2}, seconds=22)
    assert (report["claimed"], report["pending"]) == (1, True)
    assert report["seconds"] < 8
    assert sqlite_shell("item", "show", f"{job_id}-0", "--json").json["state"] == "queued"


def test_it_takes_the_time_that_is_left_or_its_own_if_that_is_less() -> None:
    assert in_time(Limits(), 600).invocation_seconds == 580
    assert in_time(Limits(invocation_seconds=60), 600).invocation_seconds == 60
    with pytest.raises(UsageError, match="15 seconds are too few"):
        in_time(Limits(), 15)


@pytest.mark.parametrize("wrong", ["1", -1, True, None, 1.0, [1]])
def test_a_depth_that_is_none_runs_nothing(wrong: Any) -> None:
    with pytest.raises(UsageError, match="chain_depth must be a whole number"):
        depth_of({"chain_depth": wrong})


@pytest.mark.parametrize("event", [None, [], "x" * 10_000, 5])
def test_an_event_that_is_no_object_runs_nothing(event: Any) -> None:
    with pytest.raises(UsageError, match=r"(?m)^the event must be an object, not .{1,100}$"):
        depth_of(event)


def test_a_depth_beyond_the_limit_runs_nothing(sqlite_shell: Shell, lambdas: InvokeApi, provider: Provider) -> None:
    job_id = queue(sqlite_shell, provider, 1)
    with pytest.raises(UsageError, match="chain depth 3 is beyond the limit of 2"):
        lambdas.trigger({"chain_depth": 3})
    assert succeeded(sqlite_shell, job_id) == 0


def test_a_line_of_its_log_tells_cloudwatch_what_the_alarms_look_at(
    sqlite_shell: Shell, lambdas: InvokeApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BACKSTAY_APP", "shop:backstay")
    sqlite_shell.submit("picky", 3)
    sqlite_shell.submit("echo", *range(15))
    capsys.readouterr()
    lambdas.trigger({"chain_depth": 2})
    (line,) = capsys.readouterr().out.splitlines()
    said = json.loads(line)
    (directive,) = said["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], directive["Dimensions"]) == ("Backstay", [["FunctionName"]])
    values = {metric["Name"]: said[metric["Name"]] for metric in directive["Metrics"]}
    assert values == {"Ticks": 1, "ChainsFull": 1, "ItemsTimedOut": 0, "JobsEnded": 1, "JobsFailed": 1}
