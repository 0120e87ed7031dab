"""The service's key: made once, whoever comes first, and never seen half written."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from standardwebhooks import Webhook

from backstay.clock import Clock
from backstay.server.signing import KEY_LENGTH_MIN, KEY_NAME, Signer, key_beside, sealed


def test_processes_that_start_together_have_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as starting:
        keys = set(starting.map(key_beside, [tmp_path] * 64))
    assert len(keys) == 1
    assert len(keys.pop()) >= KEY_LENGTH_MIN
    assert [path.name for path in tmp_path.iterdir()] == [KEY_NAME]
    assert (tmp_path / KEY_NAME).stat().st_mode & 0o077 == 0


def test_a_key_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / KEY_NAME).write_text("a key of before\n")
    assert key_beside(tmp_path) == "a key of before"


def test_each_of_two_secrets_opens_what_both_have_sealed() -> None:
    signer, body = Signer("k" * 32), '{"say": "Grüße"}'
    secrets = [signer.secret_of("wh_1", version) for version in (2, 1)]
    headers = sealed(secrets, "evt_1", Clock().now_ms(), body)
    for secret in secrets:
        assert Webhook(secret).verify(body, headers) == {"say": "Grüße"}
