"""The key and other secrets: read from the environment, sent in headers, and shown nowhere else."""

import hashlib
import json
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
_SECRET_LENGTH_MIN: Final = 8  # a shorter one, such as "none" for a local server, is an ordinary word

_VEILED: Final = "<secret>"
_ESCAPED_ASCII: Final = "\\u00"  # in JSON; a secret has only ASCII characters


def key_of(endpoint: Endpoint, environ: Mapping[str, str] = os.environ) -> str | None:
    """The endpoint's key; None for a server that needs none."""
    key = environ.get(endpoint.key_env)
    if key and not _KEY.fullmatch(key):
        raise UsageError(
            f"the key in {endpoint.key_env} has a space, a line end or another character that no key can have",
            hint=f"set {endpoint.key_env} again",
        )
    return key or None


def account_of(key: str | None) -> str:
    """Distinguishes keys without revealing them."""
    return hashlib.sha256(key.encode()).hexdigest()[:12] if key else ""


def headers_of(endpoint: Endpoint, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The endpoint's further headers, by their names in lower case."""
    headers: dict[str, str] = {}
    for name, variable in endpoint.headers_env:
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OURS:
            raise UsageError(f"{name!r} is not a header that can be set")
        value = environ.get(variable)
        if value is None:
            raise UsageError(
                f"the environment variable {variable} for the header {name} is not set", hint=f"set {variable}"
            )
        if not _HEADER_VALUE.fullmatch(value):
            raise UsageError(f"the value in {variable} has a line end or another character that no header can have")
        headers[name.lower()] = value
    return headers


def _spelt(secret: str) -> str:
    """A pattern for the secret in JSON, where any character may be written by its number."""
    escaped = {each: r"\\?" for each in '/"\\'}
    return "".join(rf"(?:{escaped.get(each, '')}{re.escape(each)}|\\{{1,2}}u00(?i:{ord(each):02x}))" for each in secret)


class Veil:
    """Removes secrets from a provider's replies, in case it repeats them."""

    def __init__(self, secrets: Iterable[str | None]) -> None:
        known = {secret for secret in secrets if secret and len(secret) >= _SECRET_LENGTH_MIN}
        in_json = {json.dumps(secret)[1:-1] for secret in known}
        self._secrets = tuple(known | in_json | {secret.replace("/", "\\/") for secret in in_json})
        self._spelt = re.compile("|".join(map(_spelt, known))) if known else None

    def over(self, text: str) -> str:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, _VEILED)
        if self._spelt is not None and _ESCAPED_ASCII in text:
            text = self._spelt.sub(_VEILED, text)
        return text

    def over_headers(self, headers: dict[str, str]) -> dict[str, str]:
        values = " ".join(headers.values())
        if any(secret in values for secret in self._secrets):
            return {name: self.over(value) for name, value in headers.items()}
        return headers
