"""Where requests go and on what terms, without secrets; and its key and headers, out of the environment."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from yarl import URL

from backstay.core.errors import UsageError
from backstay.llm.lines import LinePart, LineRefused, preview

ACCOUNT_CHARACTERS: Final = 6
DEFAULT_API: Final = "openai"
_PATH: Final = re.compile(r"/(?!/)[!-~]*")
_SECRET_NAME: Final = re.compile(r"key|token|secret|passw|signature", re.IGNORECASE)


class Lane(StrEnum):
    """How a request is made: at once, as a task of the provider, or in the provider's own batches."""

    CALL = "call"
    BACKGROUND = "background"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One service as one kind of run uses it. Two runs with the same terms share it, and so its limits."""

    base_url: str
    lane: Lane = Lane.CALL
    key_env: str = "OPENAI_API_KEY"  # the variable that holds the key; the key itself is stored nowhere else
    headers_env: tuple[tuple[str, str], ...] = ()  # further headers: name, and the variable that holds the value
    # Micro-dollars per million tokens: in, out, and cached if it differs. None: looked up by model.
    price: tuple[int, ...] | None = None
    reconcilable: bool = False  # calls are stored at the provider, so that a lost one can be found
    timeout_seconds: float | None = None  # of one request; None: as in the settings of the process that sends it
    fail_on: tuple[str, ...] = ()  # flaws that make an answer a failure
    api: str = DEFAULT_API  # the provider whose API it speaks, by its name in the registry
    beside: tuple[str, ...] = ()  # the other endpoints of a run that has several providers, as they are stored
    then: tuple[str, ...] = ()  # its fallbacks in their order, as they are stored: they get what it does not answer
    model: str | None = None  # of a fallback: instead of the request's own
    output_tokens_default: int | None = None  # of a fallback: the bound of a reply, if its format needs one
    schema: str | None = None  # that answers must fit, as `AnswerSchema.dump` writes it
    reasks: int = 0  # how often the model is asked for a better answer, if one does not fit or a check refuses it

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def provider(self) -> str:
        """The service behind one key's variable: all lanes share its rate limits."""
        named = "\0".join((self.base_url, self.key_env, *map("=".join, self.headers_env)))
        return f"{self.host}#{_digest(named)}"

    def provider_of(self, account: str) -> str:
        """The service behind one key, with its own breaker and holds. Another process may have another key in the same
        variable, and a refusal of one key says nothing about the other."""
        return f"{self.provider}/{account[:ACCOUNT_CHARACTERS]}" if account else self.provider

    @property
    def pace_name(self) -> str:
        """The name under which limits are stored: batches wait at the provider and do not count against the limits of
        calls."""
        return self.name if self.lane is Lane.BATCH else self.provider

    @property
    def name(self) -> str:
        """The name of the handler that sends its requests."""
        return f"{self.lane.value}@{self.host}#{_digest(self.dump())}"

    def dump(self) -> str:
        """The text that identifies the endpoint and its runs. A term that was added later is part of it only where it
        is set."""
        values = asdict(self)
        for name in _ADDED_LATER:
            if values[name] == _DEFAULTS[name]:
                del values[name]
        return json.dumps(values, sort_keys=True)

    @property
    def starts(self) -> "tuple[Endpoint, ...]":
        """The endpoints at which the requests of a run begin: this one, and those beside it."""
        return (self, *map(load_endpoint, self.beside))

    @property
    def fallback(self) -> "Endpoint | None":
        """The endpoint of a request that this one does not answer; None: there is no fallback."""
        return None if not self.then else replace(load_endpoint(self.then[0]), then=self.then[1:])

    @property
    def chain(self) -> "tuple[Endpoint, ...]":
        """This endpoint and its fallbacks, in their order."""
        then = self.fallback
        return (self,) if then is None else (self, *then.chain)

    @property
    def all(self) -> "tuple[Endpoint, ...]":
        """This endpoint, those beside it, and the fallbacks of all of them."""
        found = {endpoint.name: endpoint for start in self.starts for endpoint in start.chain}
        return tuple(found.values())


_ADDED_LATER: Final = ("fail_on", "api", "beside", "then", "model", "output_tokens_default", "schema", "reasks")
_DEFAULTS: Final = {field.name: field.default for field in fields(Endpoint)}


def load_endpoint(text: str) -> Endpoint:
    """Fields that a newer version wrote and this one does not know would change what is sent, so they are refused."""
    values = json.loads(text)
    known = {field.name for field in fields(Endpoint)}
    if unknown := values.keys() - known:
        raise ValueError(f"the endpoint has {sorted(unknown)[0]!r}, which this version does not know")
    values["lane"] = Lane(values["lane"])
    values["headers_env"] = tuple((name, variable) for name, variable in values["headers_env"])
    values["price"] = tuple(values["price"]) if values["price"] is not None else None
    values["fail_on"] = tuple(values.get("fail_on", ()))
    values["beside"] = tuple(values.get("beside", ()))
    values["then"] = tuple(values.get("then", ()))
    return Endpoint(**values)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def parts_of(base_url: str) -> SplitResult:
    """A base URL in its parts; it is stored, so it must not contain a secret."""
    try:
        base = urlsplit(base_url)
        _ = base.port
    except ValueError as error:
        raise UsageError(f"the base URL is not valid: {error}") from None
    if base.scheme not in ("http", "https") or not base.hostname:
        raise UsageError(f"the base URL must begin with http:// or https://, not {base_url[:40]!r}")
    if "@" in base.netloc:
        raise UsageError(
            "the base URL must not contain a user name or a password", hint="pass the key in an environment variable"
        )
    if any(_SECRET_NAME.search(name) for name, _ in parse_qsl(base.query, keep_blank_values=True)):
        raise UsageError("the base URL must not contain a key", hint="pass the key with --api-key-env or --header")
    return base


def refuse_path(base: SplitResult, at_end: re.Pattern[str]) -> None:
    """Raises UsageError if the base URL ends in a path that every request names itself."""
    if (extra := at_end.search(base.path)) is not None:
        shorter = base._replace(path=base.path[: extra.start()]).geturl()
        raise UsageError(
            f"the base URL must not end in {extra[0]}: every request names its own path below it",
            hint=f"give {shorter}",
        )


def url_below(base: SplitResult, root: str, path: str) -> URL:
    """The path below a root at the base URL's host, with the queries of both."""
    where, _, query = path.partition("#")[0].partition("?")
    query = "&".join(part for part in (base.query, query) if part)
    return URL(f"{base.scheme}://{base.netloc}{root}{where}{'?' if query else ''}{query}")


@lru_cache(maxsize=1024)
def path_of(url: str, base_url: str | None) -> str:
    """The path of a url. A url on another host is refused, because the key would be sent there."""
    try:
        split = urlsplit(url)
    except ValueError:
        raise LineRefused(f"has the url {preview(url)}, which is not valid", LinePart.URL) from None
    if split.scheme or split.netloc:
        home = urlsplit(base_url or "")
        if (split.scheme.lower(), split.netloc.lower()) != (home.scheme.lower(), home.netloc.lower()):
            reason = f"has the url {preview(url)}, which is on another host than the requests go to"
            raise LineRefused(reason, LinePart.URL)
        url = split.path + (f"?{split.query}" if split.query else "")
    if not _PATH.fullmatch(url) or any(mark in url for mark in "\\#") or ".." in url.partition("?")[0].split("/"):
        raise LineRefused(f"has the url {preview(url)}; it must be a path, which begins with a slash", LinePart.URL)
    return url


_KEY: Final = re.compile(r"[!-~]+")
_HEADER_NAME: Final = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_HEADER_VALUE: Final = re.compile(r"[ -~]*")
_OURS: Final = frozenset({"content-length", "content-type", "content-encoding", "transfer-encoding", "connection"})
_SECRET_LENGTH_MIN: Final = 8  # a shorter one, such as "none" for a local server, is an ordinary word

_SECRETS_MAX: Final = 50
_VEILED: Final = "<secret>"
_ESCAPED_ASCII: Final = "\\u00"  # in JSON; a secret has only ASCII characters


def key_of(endpoint: Endpoint, environ: Mapping[str, str]) -> str | None:
    """The endpoint's key; None for a server that needs none."""
    key = environ.get(endpoint.key_env)
    if key and not is_key(key):
        raise UsageError(
            f"the key in {endpoint.key_env} has a space, a line end or another character that no key can have",
            hint=f"set {endpoint.key_env} again",
        )
    return key or None


def is_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


def account_of(key: str | None) -> str:
    """Distinguishes keys without revealing them."""
    return hashlib.sha256(key.encode()).hexdigest()[:12] if key else ""


def headers_of(endpoint: Endpoint, environ: Mapping[str, str]) -> dict[str, str]:
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
        self._known: list[str] = []
        self.add(*secrets)

    def add(self, *secrets: str | None) -> None:
        """Removes these secrets too. Replies may still repeat keys that have been renewed, so the last ones stay."""
        new = [secret for secret in secrets if secret and len(secret) >= _SECRET_LENGTH_MIN]
        self._known = list(dict.fromkeys((*self._known, *new)))[-_SECRETS_MAX:]
        known = set(self._known)
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
