"""Secrets that are derived from one key instead of stored: for webhooks and for callback addresses."""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Final

from backstay.core.errors import UsageError

KEY_LENGTH_MIN: Final = 32
SECRET_PREFIX: Final = "whsec_"
_TAG_BYTES: Final = 16


def read_keys(text: str) -> list[str]:
    """The keys in a setting or a file, with commas or line ends between them."""
    return list(dict.fromkeys(filter(None, (part.strip() for part in re.split(r"[,\r\n]", text)))))


class Signer:
    """Processes with the same key make the same signatures: all processes of one service must share it.

    During a key change there are several. The first one signs; signatures of all of them are valid. Secrets that others
    hold are derived from each key, so that they can be changed one by one.
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
        """A webhook's signing secret, in the form of Standard Webhooks: the one that is shown."""
        return self.secrets_of(webhook_id, version)[0]

    def secrets_of(self, webhook_id: str, version: int) -> list[str]:
        """All secrets that its receiver may hold: each of them signs."""
        made = [_signature_of(key, f"webhook\0{webhook_id}\0{version}") for key in self._keys]
        return [SECRET_PREFIX + base64.b64encode(one).decode() for one in made]

    def tag(self, purpose: str, *parts: object) -> str:
        """The tag of a link: it proves that this service made the link."""
        return self._tags(purpose, *parts)[0]

    def fits(self, tag: str, purpose: str, *parts: object) -> bool:
        """Whether any of the keys made the tag. All are tried, so that the time does not reveal which."""
        return any([hmac.compare_digest(tag.encode(), one.encode()) for one in self._tags(purpose, *parts)])

    def _tags(self, purpose: str, *parts: object) -> list[str]:
        text = "\0".join((purpose, *map(str, parts)))
        made = [_signature_of(key, text)[:_TAG_BYTES] for key in self._keys]
        return [base64.urlsafe_b64encode(one).decode().rstrip("=") for one in made]


def _signature_of(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def webhook_headers(secrets: Iterable[str], name: str, at_ms: int, body: str) -> dict[str, str]:
    """The headers of Standard Webhooks; while a secret is being changed, the old one signs too.

    Written by hand, because a worker need not have the library for it installed.
    """
    text = f"{name}.{at_ms // 1000}.{body}".encode()
    keys = [base64.b64decode(secret.removeprefix(SECRET_PREFIX)) for secret in secrets]
    made = [base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode() for key in keys]
    return {
        "webhook-id": name,
        "webhook-timestamp": str(at_ms // 1000),
        "webhook-signature": " ".join(f"v1,{one}" for one in made),
    }
