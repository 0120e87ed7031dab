"""The service's key: made once, whoever comes first, and never seen half written."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from backstay.clock import Clock
from backstay.core.errors import UsageError
from backstay.core.signing import KEY_LENGTH_MIN, Signer, webhook_headers
from backstay.settings import KEY_FILE, key_beside


def test_processes_that_start_together_have_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as starting:
        keys = set(starting.map(key_beside, [tmp_path] * 64))
    assert len(keys) == 1
    assert len(keys.pop()) >= KEY_LENGTH_MIN
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o077 == 0


def test_a_key_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_text("a key of before\n")
    assert key_beside(tmp_path) == "a key of before"


def test_each_of_two_secrets_opens_what_both_have_sealed() -> None:
    signer, body = Signer("k" * 32), '{"say": "Grüße"}'
    secrets = [signer.secret_of("wh_1", version) for version in (2, 1)]
    headers = webhook_headers(secrets, "evt_1", Clock().now_ms(), body)
    for secret in secrets:
        assert Webhook(secret).verify(body, headers) == {"say": "Grüße"}


@pytest.mark.parametrize("text", ["", "short", f"{'k' * 32},short", "k" * 20 + "," + "k" * 20, ",", "\n"])
def test_every_key_of_a_list_must_be_long_enough(text: str) -> None:
    with pytest.raises(UsageError, match="fewer than 32 characters") as refused:
        Signer(text)
    assert "comma" in refused.value.hint
    assert "short" not in str(refused.value)


@pytest.mark.parametrize("text", ["{0},{1}", "{0}\n{1}\n", " {0} ,\n {1},", "{0}\r\n{1}", "{0},{1},{0}"])
def test_keys_are_parted_by_commas_or_lines(text: str) -> None:
    first, second = "a" * 32, "b" * 32
    signer = Signer(text.format(first, second))
    assert signer.tag("x", 1) == Signer(first).tag("x", 1)
    assert signer.fits(Signer(second).tag("x", 1), "x", 1)
    assert not signer.fits(Signer("c" * 32).tag("x", 1), "x", 1)
    assert signer.secrets_of("wh_1", 1) == [Signer(one).secret_of("wh_1", 1) for one in (first, second)]
