"""A run with --fallback: what one provider does not answer, the next one gets, translated, within one budget."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from backstay.practice import Practice
from tests.cli.practice_thread import CHAT, file_of, served
from tests.cli.shell import Ran, Shell

CLAUDE, GPT = "claude-sonnet-4-5", "gpt-4o-mini"
TO_CLAUDE = ("--fallback", f"anthropic:{CLAUDE}")


class Two(NamedTuple):
    openai: Practice
    anthropic: Practice


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RETRY_MAX_ATTEMPTS", "2"), ("RETRY_BASE_DELAY_MS", "50"), ("FALLBACK_AFTER_SECONDS", "0")):
        monkeypatch.setenv(f"BACKSTAY_{name}", value)


def serve(stack: ExitStack, monkeypatch: pytest.MonkeyPatch, **faults: Any) -> Two:
    """Two providers, each of which takes only its own key; the faults are of the first."""
    found = []
    for name, more in (("OPENAI", faults), ("ANTHROPIC", {})):
        key = f"sk-{name.lower()}-0123456789"
        practice, base_url = stack.enter_context(served(**{"key": key, **more}))
        monkeypatch.setenv(f"{name}_BASE_URL", base_url.removesuffix("/v1"))
        monkeypatch.setenv(f"{name}_API_KEY", key)
        found.append(practice)
    return Two(*found)


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    with ExitStack() as stack:
        yield serve(stack, monkeypatch)


def lines(shell: Shell, name: str = "results") -> dict[str, Any]:
    found = [json.loads(line) for line in (shell.folder / f"requests.{name}.jsonl").read_text().splitlines()]
    assert len({line["custom_id"] for line in found}) == len(found)
    return {line["custom_id"]: line for line in found}


def answered(shell: Shell) -> Counter[tuple[str, str]]:
    return Counter((line["provider"], line["model"]) for line in lines(shell).values())


def check_complete(shell: Shell, ran: Ran, two: Two, of_openai: int, of_anthropic: int) -> None:
    """Every request is answered once, by the one or the other, and the files, the summary and the bills agree."""
    assert ran.code == 0, ran.err
    assert (two.openai.bill.charged, two.anthropic.bill.charged) == (of_openai, of_anthropic)
    assert ran.rows[-1]["answered"] == {"openai": of_openai, f"anthropic:{CLAUDE}": of_anthropic}
    assert len(lines(shell)) == of_openai + of_anthropic
    by_provider = Counter(line["provider"] for line in lines(shell).values())
    assert by_provider == Counter({"openai": of_openai, "anthropic": of_anthropic})


@pytest.mark.slow
def test_three_requests_that_always_fail_among_two_hundred_are_answered_elsewhere(shell: Shell, two: Two) -> None:
    models = [f"practice-{fault}" if fault else GPT for fault in ((None,) * 50 + (500,)) * 3 + (None,) * 47]
    ran = shell("run", file_of(shell, *models), *TO_CLAUDE, "--json")
    check_complete(shell, ran, two, 197, 3)
    found = lines(shell)
    assert {found[name]["response"]["body"]["model"] for name in ("r50", "r101", "r152")} == {CLAUDE}
    assert answered(shell) == {("openai", GPT): 197, ("anthropic", CLAUDE): 3}
    shown = shell("item", "show", f"{ran.rows[-1]['job']}-50").out
    assert " failed, and call@" in shown, "the timeline shows the move"


@pytest.mark.slow
def test_a_provider_that_is_down_from_the_start_is_left_at_once(
    sqlite_shell: Shell, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("BACKSTAY_RETRY_MAX_ATTEMPTS", "5")
    path = file_of(sqlite_shell, *[GPT] * 60)
    ran = sqlite_shell("run", path, *TO_CLAUDE, "--concurrency", "20", "--json")
    check_complete(sqlite_shell, ran, two, 0, 60)


@pytest.mark.parametrize(("faults", "of_openai"), [({"quota": 30}, 30), ({"key": "another"}, 0)])
def test_an_account_without_credit_or_with_a_refused_key_holds_up_nothing(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch, faults: dict[str, Any], of_openai: int
) -> None:
    with ExitStack() as stack:
        two = serve(stack, monkeypatch, **faults)
        path = file_of(sqlite_shell, *[GPT] * 60)
        ran = sqlite_shell("run", path, *TO_CLAUDE, "--concurrency", "10", "--json")
        check_complete(sqlite_shell, ran, two, of_openai, 60 - of_openai)
        assert list(ran.rows[-1]["on_hold"]) == ["openai"], "the user is told why"


def test_after_the_last_provider_a_request_fails_with_its_reason(sqlite_shell: Shell, two: Two) -> None:
    path = file_of(sqlite_shell, "practice-500", GPT, "practice-400")
    options = ("--fallback", f"openai:practice-503,anthropic:practice-404,openai:{GPT}-x", "--json")
    ran = sqlite_shell("run", path, *options)
    assert (ran.code, ran.rows[-1]["succeeded"]) == (0, 3)
    assert answered(sqlite_shell) == {("openai", GPT): 1, ("openai", f"{GPT}-x"): 2}
    (sqlite_shell.folder / "requests.results.jsonl").unlink()
    fewer = ("--fallback", "openai:practice-503,anthropic:practice-404", "--reuse", "never", "--json")
    ran = sqlite_shell("run", path, *fewer)
    assert (ran.code, ran.rows[-1]["failed"]) == (3, 2)
    failures = lines(sqlite_shell, "results.errors")
    assert {failures[name]["response"]["status_code"] for name in ("r0", "r2")} == {404}
    assert {(line["provider"], line["model"]) for line in failures.values()} == {("anthropic", "practice-404")}


def test_each_provider_of_a_mixed_file_is_the_fallback_of_the_other(sqlite_shell: Shell, two: Two) -> None:
    path = file_of(sqlite_shell, GPT, CLAUDE, "practice-500", "anthropic:practice-500")
    ran = sqlite_shell("run", path, "--fallback", f"anthropic:{CLAUDE},openai:{GPT}", "--json", "--reply-as", "openai")
    assert ran.code == 0, ran.err
    assert answered(sqlite_shell) == {("openai", GPT): 1, ("anthropic", CLAUDE): 3}
    assert {line["response"]["body"]["object"] for line in lines(sqlite_shell).values()} == {"chat.completion"}


def test_the_same_command_is_the_same_run_and_other_fallbacks_are_another(sqlite_shell: Shell, two: Two) -> None:
    path = file_of(sqlite_shell, GPT, "practice-400")
    first = sqlite_shell("run", path, *TO_CLAUDE, "--json").rows[-1]["job"]
    again = sqlite_shell("run", path, *TO_CLAUDE, "--json")
    assert (again.code, again.rows[-1]["job"], two.anthropic.bill.charged) == (0, first, 1)
    other = sqlite_shell("run", path, "--fallback", "openai:gpt-4o")
    assert (other.code, f"holds the results of job {first}" in other.err) == (2, True)


def test_workers_find_the_fallbacks_of_a_submitted_file(shell: Shell, two: Two) -> None:
    path = file_of(shell, GPT, "practice-400", "anthropic:practice-400")
    assert shell("submit", path, "--fallback", f"anthropic:{CLAUDE},openai:{GPT}").code == 0
    for _ in range(3):
        shell("tick", "--json")
    assert (two.openai.bill.charged, two.anthropic.bill.charged) == (1, 2)


def test_batches_fall_back_to_calls(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTAY_POLL_INTERVAL_SECONDS", "0.1")
    with ExitStack() as stack:
        two = serve(stack, monkeypatch, batch_seconds=0.1)
        path = file_of(sqlite_shell, GPT, "practice-400", GPT)
        ran = sqlite_shell("run", path, "--lane", "batch", *TO_CLAUDE, "--json")
        check_complete(sqlite_shell, ran, two, 2, 1)


def test_a_budget_covers_the_dearest_provider_of_a_request_and_is_never_exceeded(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        two = serve(stack, monkeypatch, key="another")
        path = file_of(sqlite_shell, *[GPT] * 40)
        plain = sqlite_shell("plan", path, "--json").json["worst_micros"]
        worst = sqlite_shell("plan", path, *TO_CLAUDE, "--json").json["worst_micros"]
        assert worst > 10 * plain
        budget = worst * 3 // 40  # of three calls
        ran = sqlite_shell("run", path, *TO_CLAUDE, "--budget", f"{budget / 1e6:.6f}", "--json")
        assert ran.code == 7, ran.err
        told = ran.rows[-1]
        assert 0 < told["spent_micros"] <= told["spent_micros"] + told["reserved_micros"] <= budget
        assert two.anthropic.bill.charged == told["succeeded"] > 0
        again = sqlite_shell("run", path, *TO_CLAUDE, "--budget", f"{worst / 1e6:.6f}", "--json")
        assert (again.code, again.rows[-1]["succeeded"]) == (0, 40)
        assert two.anthropic.bill.charged == 40


def test_a_fallback_without_a_known_price_is_refused_under_a_budget(sqlite_shell: Shell, two: Two) -> None:
    path = file_of(sqlite_shell, GPT)
    ran = sqlite_shell("run", path, "--fallback", "vllm:mine", "--budget", "1")
    assert ran.code == 2
    assert "the cost of 'r0' at its fallback vllm:mine has no limit, so --budget cannot be enforced" in ran.err
    assert "no price is known for model 'mine': write vllm:mine=IN/OUT in --fallback" in ran.err
    given = sqlite_shell("plan", path, "--fallback", "vllm:mine=1000/1000", "--json").json["worst_micros"]
    assert given > sqlite_shell("plan", path, "--fallback", "vllm:mine=0/0", "--json").json["worst_micros"] > 0
    assert sqlite_shell("run", path, "--fallback", "vllm:mine=0/0", "--budget", "1").code == 0


MESSAGE = {"model": CLAUDE, "messages": [{"role": "user", "content": "x"}], "max_tokens": 5}


@pytest.mark.parametrize("command", ["run", "submit", "plan"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--fallback", "nobody:m"), "there is no provider 'nobody'"),
        (("--fallback", "anthropic"), "--fallback 'anthropic' names no model"),
        (("--fallback", f"anthropic:{CLAUDE},anthropic:{CLAUDE}"), f"--fallback names anthropic:{CLAUDE} twice"),
        (("--fallback", "openai:m", "--lane", "cheapest", "--deadline", "24h"), "does not work with --lane cheapest"),
        (("--fallback", "openai:m=1"), "'1' is not a price"),
        (("--fallback", "azure:m"), "azure has no address: AZURE_OPENAI_ENDPOINT is not set"),
    ],
)
def test_fallbacks_that_cannot_be_are_one_line_before_anything_is_sent(
    sqlite_shell: Shell, two: Two, command: str, options: tuple[str, ...], said: str
) -> None:
    ran = sqlite_shell(command, file_of(sqlite_shell, GPT), *options)
    assert (ran.code, said in ran.err, len(ran.said) <= 2) == (2, True, True), ran.err
    assert (two.openai.counts.calls, two.anthropic.counts.calls) == (0, 0)


def test_the_key_of_a_fallback_must_be_there_before_anything_is_sent(
    sqlite_shell: Shell, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_BASE_URL")
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    for more in ((), ("--provider", "openai")):
        ran = sqlite_shell("run", file_of(sqlite_shell, GPT), *TO_CLAUDE, *more)
        said = f"ANTHROPIC_API_KEY is not set, and api.anthropic.com needs a key (for --fallback anthropic:{CLAUDE})"
        assert (ran.code, said in ran.err, two.openai.counts.calls) == (2, True, 0), ran.err


@pytest.mark.parametrize(
    ("url", "body", "fallback", "said"),
    [
        ("/v1/messages", MESSAGE, f"openai:{GPT}", "line 2 is for /v1/messages, in the format of anthropic, and"),
        (CHAT, {**MESSAGE, "logprobs": True, "model": GPT}, f"anthropic:{CLAUDE}", "line 2 has logprobs"),
    ],
)
def test_a_line_that_cannot_be_written_for_a_fallback_is_a_bad_line(
    sqlite_shell: Shell, two: Two, url: str, body: dict[str, Any], fallback: str, said: str
) -> None:
    good = {"custom_id": "a", "method": "POST", "url": CHAT, "body": {**MESSAGE, "model": GPT}}
    bad = {"custom_id": "b", "method": "POST", "url": url, "body": body}
    path = sqlite_shell.file(f"{json.dumps(good)}\n{json.dumps(bad)}\n", "requests.jsonl")
    ran = sqlite_shell("run", path, "--fallback", f"openai:gpt-4o,{fallback}")
    assert (ran.code, said in ran.err, two.openai.counts.calls) == (2, True, 0), ran.err
    assert f"(for the fallback {'openai:gpt-4o' if url != CHAT else fallback})" in ran.err


def test_a_fallback_that_every_request_asks_for_already_is_refused(sqlite_shell: Shell, two: Two) -> None:
    ran = sqlite_shell("run", file_of(sqlite_shell, GPT), "--fallback", f"openai:{GPT}")
    assert (ran.code, f"every request goes to openai:{GPT} already" in ran.err) == (2, True)


def test_a_handler_has_a_handler_as_its_fallback(sqlite_shell: Shell) -> None:
    job = sqlite_shell.submit("picky", 3, fallback="echo")
    sqlite_shell.tick()
    assert sqlite_shell("job", "show", job, "--json").json["fallback"] == "echo"


def test_the_answer_of_a_fallback_is_used_again_by_runs_that_have_it_too(sqlite_shell: Shell, two: Two) -> None:
    results = sqlite_shell.folder / "requests.results.jsonl"
    models = [GPT, "practice-500"]
    sqlite_shell("run", file_of(sqlite_shell, *models), *TO_CLAUDE, "--json")
    results.unlink()
    ran = sqlite_shell("run", file_of(sqlite_shell, *models, GPT), *TO_CLAUDE, "--json")
    check_complete(sqlite_shell, ran, two, 2, 1)
    assert ran.rows[-1]["reused"] == 2
    results.unlink()
    ran = sqlite_shell("run", file_of(sqlite_shell, *models, GPT), "--json")
    assert (ran.rows[-1]["reused"], ran.rows[-1]["failed"]) == (2, 1), "another model's answer is not what it asks for"
