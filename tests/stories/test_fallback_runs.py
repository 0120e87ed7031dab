"""A run with a fallback that is killed while its requests are with the second provider."""

from pathlib import Path

import pytest

from tests.stories.runs import Rehearsal, paid_again, practice, wait_until


@pytest.mark.slow
def test_a_run_killed_while_its_fallback_answers_is_complete_and_each_request_is_answered_once(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first provider runs out of credit in the middle of the run."""
    monkeypatch.setenv("BACKSTAY_LEASE_SECONDS", "3")
    monkeypatch.setenv("BACKSTAY_HEARTBEAT_SECONDS", "1")
    with practice("--quota", "40") as first, practice("--latency", "0.3") as second:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", second.base_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
        options = ("--fallback", "anthropic:claude-sonnet-4-5", "--concurrency", "20", "--json")
        run = Rehearsal(tmp_path, first, database_url, *options)
        run.requests(120)
        process = run.start()
        wait_until(lambda: second.bill()["charged"] >= 20, "the second provider answers")
        process.kill()
        process.wait()
        assert run.finish() == 0, run.log
        run.check_complete(120)
        assert first.bill()["charged"] == 40
        bill = second.bill()
        assert bill["charged"] - paid_again(bill) == 80, "what was on its way at the kill is sent again, and no more"
    by_provider = {line["custom_id"]: line["provider"] for line in run.lines()}
    assert sorted(by_provider.values()) == ["anthropic"] * 80 + ["openai"] * 40
