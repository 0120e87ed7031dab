"""Secrets that are made from one key instead of stored: of webhooks, and of the addresses that answers come in at."""

import base64
import hashlib
import hmac
import os
from pathlib import Path
from typing import Final

from backstay.clock import new_secret
from backstay.core.errors import UsageError

KEY_LENGTH_MIN: Final = 32
KEY_NAME: Final = "secret.key"
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
        return "whsec_" + base64.b64encode(self._made(f"webhook\0{webhook_id}\0{version}")).decode()

    def tag(self, purpose: str, *parts: object) -> str:
        """What makes a link one that only this service can have given out."""
        text = "\0".join((purpose, *map(str, parts)))
        return base64.urlsafe_b64encode(self._made(text)[:_TAG_BYTES]).decode().rstrip("=")

    def fits(self, tag: str, purpose: str, *parts: object) -> bool:
        return hmac.compare_digest(tag.encode(), self.tag(purpose, *parts).encode())

    def _made(self, text: str) -> bytes:
        return hmac.new(self._key, text.encode(), hashlib.sha256).digest()


def key_beside(folder: Path) -> str:
    """The key of a service on one machine: made once, readable by nobody else."""
    path = folder / KEY_NAME
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(new_secret())
    except FileExistsError:
        pass  # it was made before, here or by a process that starts just now
    return path.read_text(encoding="ascii").strip()
