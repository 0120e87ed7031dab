"""Secrets that are made from one key instead of stored: of webhooks, and of the addresses that answers come in at."""

import base64
import hashlib
import hmac
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from backstay.clock import new_secret
from backstay.core.errors import UsageError

KEY_LENGTH_MIN: Final = 32
KEY_NAME: Final = "secret.key"
SECRET_PREFIX: Final = "whsec_"
_TAG_BYTES: Final = 16


def read_keys(text: str) -> list[str]:
    """The keys in a setting or a file, with commas or line ends between them."""
    return list(dict.fromkeys(filter(None, (part.strip() for part in re.split(r"[,\r\n]", text)))))


class Signer:
    """Processes with the same key sign alike: all processes of one service must share it.

    While the key is being changed there are several. The first signs; what any of them has signed is good. Secrets that
    others hold are made from each of them, so that they can be changed one by one.
    """

    def __init__(self, text: str) -> None:
        keys = read_keys(text)
        if not keys or min(map(len, keys)) < KEY_LENGTH_MIN:
            hint = "check BACKSTAY_SECRET_KEY; commas separate several keys, and each must be long enough"
            raise UsageError(f"the secret key has fewer than {KEY_LENGTH_MIN} characters", hint=hint)
        self._keys = [key.encode() for key in keys]

    def __repr__(self) -> str:
        return "<Signer>"

    def secret_of(self, webhook_id: str, version: int) -> str:
        """A webhook's signing secret, as Standard Webhooks writes it: the one to be shown."""
        return self.secrets_of(webhook_id, version)[0]

    def secrets_of(self, webhook_id: str, version: int) -> list[str]:
        """All secrets that its receiver may hold: each of them signs."""
        made = [_made(key, f"webhook\0{webhook_id}\0{version}") for key in self._keys]
        return [SECRET_PREFIX + base64.b64encode(one).decode() for one in made]

    def tag(self, purpose: str, *parts: object) -> str:
        """What makes a link one that only this service can have given out."""
        return self._tags(purpose, *parts)[0]

    def fits(self, tag: str, purpose: str, *parts: object) -> bool:
        """Whether any of the keys made the tag. All are tried, so that the time does not tell which."""
        return any([hmac.compare_digest(tag.encode(), one.encode()) for one in self._tags(purpose, *parts)])

    def _tags(self, purpose: str, *parts: object) -> list[str]:
        text = "\0".join((purpose, *map(str, parts)))
        made = [_made(key, text)[:_TAG_BYTES] for key in self._keys]
        return [base64.urlsafe_b64encode(one).decode().rstrip("=") for one in made]


def _made(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def sealed(secrets: Iterable[str], name: str, at_ms: int, body: str) -> dict[str, str]:
    """The headers of Standard Webhooks; while a secret is being changed, the old one signs too.

    By hand, because a worker beside the service need not have the library for it.
    """
    text = f"{name}.{at_ms // 1000}.{body}".encode()
    keys = [base64.b64decode(secret.removeprefix(SECRET_PREFIX)) for secret in secrets]
    made = [base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode() for key in keys]
    return {
        "webhook-id": name,
        "webhook-timestamp": str(at_ms // 1000),
        "webhook-signature": " ".join(f"v1,{one}" for one in made),
    }


def key_beside(folder: Path) -> str:
    """The key of a service on one machine: made once, readable by nobody else. The file may hold several."""
    path = folder / KEY_NAME
    if not path.exists():
        _make_key(path)
    return path.read_text(encoding="ascii").strip()


def _make_key(path: Path) -> None:
    """There as a whole or not at all: another process that starts just now may make it, too, and reads it at once."""
    handle, draft = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(new_secret())
        os.link(draft, path)
    except FileExistsError:
        pass  # the other one's counts
    finally:
        os.unlink(draft)
