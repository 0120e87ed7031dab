"""Secrets that are made from one key instead of stored: of webhooks, and of the addresses that answers come in at."""

import base64
import hashlib
import hmac
import os
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


class Signer:
    """Who has the same key signs alike: all processes of one service must have it in common."""

    def __init__(self, key: str) -> None:
        if len(key) < KEY_LENGTH_MIN:
            raise UsageError(
                f"the secret key has less than {KEY_LENGTH_MIN} characters", hint="set BACKSTAY_SECRET_KEY"
            )
        self._key = key.encode()

    def __repr__(self) -> str:
        return "<Signer>"

    def secret_of(self, webhook_id: str, version: int) -> str:
        """A webhook's signing secret, as Standard Webhooks writes it."""
        return SECRET_PREFIX + base64.b64encode(self._made(f"webhook\0{webhook_id}\0{version}")).decode()

    def tag(self, purpose: str, *parts: object) -> str:
        """What makes a link one that only this service can have given out."""
        text = "\0".join((purpose, *map(str, parts)))
        return base64.urlsafe_b64encode(self._made(text)[:_TAG_BYTES]).decode().rstrip("=")

    def fits(self, tag: str, purpose: str, *parts: object) -> bool:
        return hmac.compare_digest(tag.encode(), self.tag(purpose, *parts).encode())

    def _made(self, text: str) -> bytes:
        return hmac.new(self._key, text.encode(), hashlib.sha256).digest()


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
    """The key of a service on one machine: made once, readable by nobody else."""
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
