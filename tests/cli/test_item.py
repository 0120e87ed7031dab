"""`backstay item …`: the timeline, and why it is not running."""

import pytest

from tests.cli.shell import Shell


def codes(shell: Shell, item: str) -> list[str]:
    return [reason["code"] for reason in shell("item", "show", item, "--json").json["reasons"]]


def test_a_waiting_item_says_that_nobody_runs_it_and_what_is_ahead(shell: Shell) -> None:
    job_id = shell.submit("echo", 1, 2, 3)
    assert codes(shell, f"{job_id}-2") == ["no_worker", "items_ahead"]
    text = shell("item", "show", f"{job_id}-2").out
    assert "why it is not running" in text
    assert "no live worker runs handler 'echo'" in text
    assert "2 items are ahead of it" in text


def test_only_a_late_result_that_waits_is_accepted(shell: Shell) -> None:
    job_id = shell.submit("echo", 1)
    refused = shell("item", "accept-late", f"{job_id}-0")
    assert refused.code == 5
    assert f"item {job_id}-0 has no late result" in refused.said[0]
    assert shell("job", "accept-late", job_id, "--json").json["items"] == 0
    assert shell("job", "accept-late", job_id + 1).code == 5


def test_a_paused_job_is_a_reason(shell: Shell) -> None:
    job_id = shell.submit("echo", 1)
    shell("job", "pause", job_id)
    assert codes(shell, f"{job_id}-0")[0] == "job_paused"
    shell.tick()  # its sweep moves the item out of the claim's way
    assert codes(shell, f"{job_id}-0") == ["job_paused", "no_worker", "next"]
    assert shell("item", "show", f"{job_id}-0", "--json").json["due_at"] is None


def test_an_item_that_waits_for_its_retry_says_until_when_and_why(shell: Shell) -> None:
    job_id = shell.submit("flaky", 1)
    shell.tick()
    shown = shell("item", "show", f"{job_id}-0", "--json").json
    assert shown["reasons"][0]["code"] == "waits_for_retry"
    assert shown["reasons"][0]["until_at"] == shown["due_at"]
    assert "GW_5XX: try later" in shown["reasons"][0]["text"]
    assert shown["retry_after"] == shown["due_at"]
    assert shown["started_at"] == shown["attempts"][0]["started_at"]
    assert shown["updated_at"] == shown["attempts"][0]["ended_at"]


def test_a_held_provider_is_a_reason_under_whatever_name_the_handler_has(shell: Shell) -> None:
    shell.tick()  # a worker tells that provider acme is behind the handler picky
    shell("provider", "hold", "acme", "--reason", "quota used up", "--for", "2h")
    job_id = shell.submit("picky", 1)
    assert "provider_held" in codes(shell, f"{job_id}-0")
    for shown in (shell("item", "show", f"{job_id}-0"), shell("job", "show", job_id)):
        assert "held because quota used up" in shown.out
    other = shell.submit("echo", 1)
    assert "provider_held" not in codes(shell, f"{other}-0")


def test_the_rate_of_its_handler_is_a_reason(sqlite_shell: Shell) -> None:
    code = "from backstay import Backstay\nb = Backstay()\n@b.handler(rate='1/h')\ndef rare(item): return item\n"
    sqlite_shell.file(code, "limited.py")
    sqlite_shell("submit", sqlite_shell.file("1\n2\n"), "--app", "limited:b", "--handler", "rare")
    sqlite_shell("tick", "--app", "limited:b")
    assert "rate_limit" in codes(sqlite_shell, "1-1")
    for shown in (sqlite_shell("item", "show", "1-1"), sqlite_shell("job", "show", "1")):
        assert "the rate limit of handler 'rare' allows the next call at" in shown.out


def test_a_finished_item_shows_everything_that_happened_in_order(shell: Shell) -> None:
    job_id = shell.submit("picky", 3)
    item = f"{job_id}-0"
    shell.tick()
    assert shell("item", "retry", item, "--json").json == {"item": item, "act": "retry"}
    shell.tick()
    shown = shell("item", "show", item, "--json").json
    whats = [moment["what"] for moment in shown["timeline"]]
    assert whats == ["submitted", "call 1 ended: failed", "retried", "call 2 ended: failed"]
    assert [moment["at"] for moment in shown["timeline"]] == sorted(moment["at"] for moment in shown["timeline"])
    assert [reason["code"] for reason in shown["reasons"]] == ["finished"]
    assert "UNKNOWN: no threes" in shell("item", "show", item).out


def test_payload_and_result_are_shown_when_asked_for(shell: Shell) -> None:
    job_id = shell.submit("echo", "a secret")
    shell.tick()
    item = f"{job_id}-0"
    assert "a secret" not in shell("item", "show", item).out + shell("item", "show", item, "--json").out
    shown = shell("item", "show", item, "--json", "--body").json
    assert (shown["payload"], shown["result"]) == ("a secret", "a secret")


@pytest.mark.parametrize("handler", ["echo", "slow"])
def test_only_a_failed_item_can_be_retried(shell: Shell, handler: str) -> None:
    job_id = shell.submit(handler, 1)
    ran = shell("item", "retry", f"{job_id}-0")
    assert (ran.code, len(ran.said)) == (2, 1)
    assert "only a failed item can be retried" in ran.err


def test_what_an_operator_does_to_a_provider_is_shown(shell: Shell) -> None:
    ran = shell("provider", "hold", "acme", "--reason", "quota")
    assert ran.out == "provider acme is held\n"
    assert "no worker has used a provider 'acme' yet" in ran.err
    shell.tick()
    rows = shell("provider", "list", "--json").rows
    assert [(row["provider"], row["state"], row["reason"]) for row in rows] == [
        ("acme", "held", "quota"),
        ("deaf", "closed", ""),
        ("echo", "closed", ""),
        ("slow", "closed", ""),
    ]
    assert "released by hand" in shell("provider", "list").out
    assert shell("provider", "release", "acme", "--json").json["state"] == "closed"


def test_a_held_provider_gets_no_items_until_it_is_released(shell: Shell) -> None:
    shell("provider", "hold", "acme")
    job_id = shell.submit("picky", 1)
    assert shell.tick().json["claimed"] == 0
    shell("provider", "release", "acme")
    assert shell.tick().json["claimed"] == 1
    assert shell("job", "show", job_id, "--json").json["state"] == "completed"
