"""The key and what else must stay secret: read from the environment, sent in headers, and nowhere else to be seen."""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

from backstay.core.errors import UsageError
from backstay.llm.endpoint import Endpoint

_KEY: Final = re.compile(r"[!-~]+")
_HEADER_NAME: Final = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_HEADER_VALUE: Final = re.compile(r"[ -~]*")
_OURS: Final = frozenset({"content-length", "content-type", "content-encoding", "transfer-encoding", "connection"})
_SECRET_LENGTH_MIN: Final = 8  # a shorter one, such as "none" for a server of one's own, is a word like any other


def key_of(endpoint: Endpoint, environ: Mapping[str, str] = os.environ) -> str | None:
    """The endpoint's key; None without one, for a server that wants none."""
    key = environ.get(endpoint.key_env)
    if key and not _KEY.fullmatch(key):
        raise UsageError(
            f"the key in {endpoint.key_env} has a blank, a line end or another character that no key has",
            hint=f"set {endpoint.key_env} again",
        )
    return key or None


def account_of(key: str | None) -> str:
    """Tells one key from another without giving it away."""
    return hashlib.sha256(key.encode()).hexdigest()[:12] if key else ""


def headers_of(endpoint: Endpoint, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The endpoint's further headers, by their names in lower case."""
    headers: dict[str, str] = {}
    for name, variable in endpoint.headers_env:
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OURS:
            raise UsageError(f"{name!r} is no header that can be set")
        value = environ.get(variable)
        if value is None:
            raise UsageError(f"the header {name} is to come from {variable}, which is not set", hint=f"set {variable}")
        if not _HEADER_VALUE.fullmatch(value):
            raise UsageError(f"the value in {variable} has a line end or another character that no header can have")
        headers[name.lower()] = value
    return headers


class Veil:
    """Takes secrets out of what a provider says, should it ever repeat them."""

    def __init__(self, secrets: Iterable[str | None]) -> None:
        known = {secret for secret in secrets if secret and len(secret) >= _SECRET_LENGTH_MIN}
        self._secrets = tuple(known | {secret.replace("/", "\\/") for secret in known})  # as some write JSON

    def over(self, text: str) -> str:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, "<secret>")
        return text

    def over_headers(self, headers: dict[str, str]) -> dict[str, str]:
        values = " ".join(headers.values())
        if any(secret in values for secret in self._secrets):
            return {name: self.over(value) for name, value in headers.items()}
        return headers
