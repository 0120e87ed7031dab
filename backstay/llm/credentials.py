"""The key and what else must stay secret: read from the environment, sent in headers, and nowhere else to be seen."""

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
_SECRET_LENGTH_MIN: Final = 8  # a shorter one, such as "none" for a server of one's own, is a word like any other

_VEILED: Final = "<secret>"
_ESCAPED_ASCII: Final = "\\u00"  # in JSON; what is not ASCII is no part of a secret


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


def _spelt(secret: str) -> str:
    """A pattern for the secret in JSON, where any character may be written by its number."""
    escaped = {each: r"\\?" for each in '/"\\'}
    return "".join(rf"(?:{escaped.get(each, '')}{re.escape(each)}|\\{{1,2}}u00(?i:{ord(each):02x}))" for each in secret)


class Veil:
    """Takes secrets out of what a provider says, should it ever repeat them."""

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
