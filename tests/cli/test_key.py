"""`backstay key`: made, listed, rotated and revoked; a secret is shown once."""

import pytest

from tests.cli.shell import Shell


def test_a_key_is_printed_once_and_listed_without_its_secret(shell: Shell) -> None:
    made = shell("key", "create", "--role", "read", "--name", "grafana", "--expires", "90d")
    (text,) = made.lines
    _, key_id, secret = text.split("_", 2)
    assert made.said == [f"key {key_id}: copy it now, it is not stored and cannot be shown again"]
    listed = shell("key", "list")
    assert listed.lines[1].split()[:3] == [key_id, "read", "grafana"]
    (row,) = shell("key", "list", "--json").json
    assert (row["id"], row["role"], row["revoked_at"]) == (key_id, "read", None)
    assert secret not in listed.out + str(row)


def test_a_name_gives_no_orders_to_the_terminal(sqlite_shell: Shell) -> None:
    sqlite_shell("key", "create", "--name", "\x1b]0;mine\x07\u202egnp")
    assert "⟨U+001B⟩]0;mine⟨U+0007⟩⟨U+202E⟩gnp" in sqlite_shell("key", "list").lines[1]


def test_a_key_is_revoked_by_its_id_or_by_all_of_it_and_its_secret_is_not_repeated(sqlite_shell: Shell) -> None:
    for whole in (False, True):
        made = sqlite_shell("key", "create", "--json").json
        given = made["key"] if whole else made["id"]
        revoked = sqlite_shell("key", "revoke", given)
        assert (revoked.code, revoked.said) == (0, [f"key {made['id']} is revoked"])
        again = sqlite_shell("key", "revoke", given)
        assert again.code == 5
        assert made["key"] not in again.err


def test_a_rotated_key_is_followed_by_one_of_the_same_name_and_role(sqlite_shell: Shell) -> None:
    old = sqlite_shell("key", "create", "--role", "admin", "--name", "ops", "--json").json
    new = sqlite_shell("key", "rotate", old["id"], "--grace", "1h", "--json").json
    rows = {row["id"]: row for row in sqlite_shell("key", "list", "--json").json}
    assert (rows[new["id"]]["role"], rows[new["id"]]["name"], rows[new["id"]]["expires_at"]) == ("admin", "ops", None)
    assert rows[old["id"]]["expires_at"] is not None


def test_a_key_that_got_out_is_rotated_without_any_grace(sqlite_shell: Shell) -> None:
    old = sqlite_shell("key", "create", "--json").json["id"]
    new = sqlite_shell("key", "rotate", old, "--grace", "0", "--json").json["id"]
    revoked = {row["id"]: row["revoked_at"] is not None for row in sqlite_shell("key", "list", "--json").json}
    assert revoked == {old: True, new: False}
    assert sqlite_shell("key", "create", "--expires", "0").code == 2


def test_keys_of_another_owner_are_not_there(sqlite_shell: Shell) -> None:
    key_id = sqlite_shell("key", "create", "--owner", "bob", "--json").json["id"]
    assert sqlite_shell("key", "revoke", key_id).code == 5
    assert sqlite_shell("key", "list", "--json").json == []
    assert [row["id"] for row in sqlite_shell("key", "list", "--owner", "bob", "--json").json] == [key_id]


@pytest.mark.parametrize("owner", ["a" * 101, "tab\t"])
def test_an_owner_that_cannot_be_gets_no_key(sqlite_shell: Shell, owner: str) -> None:
    ran = sqlite_shell("key", "create", "--owner", owner)
    assert (ran.code, len(ran.said)) == (2, 1), ran.err
    assert "an owner must have 1 to 100 printable characters" in ran.err
