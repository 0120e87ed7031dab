"""Keys that expire: the one that is valid now, and the source of the next one.

A source is a callable that gives a key and its end. It may block, so it is called in a thread. Commands, Google's and
Azure's own libraries are such sources; another one needs only an entry in `SOURCES`.
"""

import asyncio
import json
import logging
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from backstay.clock import Clock, Tasks
from backstay.core.display import one_line
from backstay.core.errors import Throttled, UsageError
from backstay.handlers.function import in_thread
from backstay.llm.endpoint import Endpoint, account_of, is_key, key_of
from backstay.llm.providers import provider_named
from backstay.settings import Settings

COMMAND_SECONDS: Final = 60.0
OUTPUT_BYTES_MAX: Final = 64 << 10
ERROR_CHARACTERS_MAX: Final = 200
LEAD_SECONDS_MAX: Final = 300.0  # a key is renewed this long before its end,
LEAD_SHARE: Final = 0.25  # or with a short life, when this share of it is left
WAIT_SECONDS: Final = 1.0  # while a new key is fetched
RETRY_SECONDS: Final = (5.0, 60.0)  # after a failure: the first wait, and the longest
REFUSED_SECONDS: Final = 60.0  # a refused key is renewed once in this time; another refusal is not about its age
SETTING: Final = "BACKSTAY_API_KEY_COMMAND"

KeyCommand = str | Sequence[str]


class Token(NamedTuple):
    key: str
    ends_at: float | None = None  # seconds since 1970; None: unknown


TokenSource = Callable[[], Token]


class Credentials:
    """The valid key of one source. It is renewed before its end, in the background while it is still valid."""

    def __init__(self, name: str, source: TokenSource, minutes: float, clock: Clock | None = None) -> None:
        self.account = account_of(name)  # of the source, so that it is the same account with every new key
        self._source = source
        self._seconds = minutes * 60
        self._clock = clock or Clock()
        self._token: Token | None = None
        self._renew_at = 0.0
        self._failures = 0
        self._problem = "a new API key is being fetched"
        self._refused_at: float | None = None
        self.on_failure: Callable[[str], None] = lambda _: None
        self._tasks = Tasks()
        self._renewing: asyncio.Task[Any] | None = None

    def current(self) -> str:
        """The valid key, at once. Without a valid key it raises Throttled, and nothing is sent."""
        now = self._now()
        if now >= self._renew_at:
            self._start()
        token = self._token
        if token is None or (token.ends_at is not None and now >= token.ends_at):
            wait = WAIT_SECONDS if self._is_renewing() else max(self._renew_at - now, WAIT_SECONDS)
            raise Throttled(self._problem, wait)
        return token.key

    @property
    def problem(self) -> str | None:
        """Why there is no valid key now."""
        try:
            self.current()
        except Throttled as error:
            return error.message
        return None

    async def wait(self) -> None:
        """Waits for a key that is being fetched, if there is no valid one."""
        try:
            self.current()
        except Throttled:
            if (renewing := self._renewing) is not None and self._is_renewing():
                await asyncio.wait([renewing])

    async def require(self) -> None:
        """Fetches the first key. Raises UsageError, with the reason, if that fails."""
        if self._token is None:
            self._keep(await in_thread(self._fetch))

    def refuse(self, key: str) -> bool:
        """Records that the provider refused this key; returns whether there is another one, or will be soon."""
        token, now = self._token, self._now()
        if token is None or token.key != key:
            return True
        if self._refused_at is not None and now < self._refused_at + REFUSED_SECONDS:
            return False
        self._refused_at, self._token, self._renew_at = now, None, 0.0
        self._problem = "the provider refused the API key, so a new one is being fetched"
        return True

    def _start(self) -> None:
        if not self._is_renewing():
            self._renewing = self._tasks.spawn(self._renew())

    def _is_renewing(self) -> bool:
        renewing = self._renewing
        return renewing is not None and not renewing.done() and renewing.get_loop() is asyncio.get_running_loop()

    async def _renew(self) -> None:
        try:
            self._keep(await in_thread(self._fetch))
        except UsageError as error:
            first, longest = RETRY_SECONDS
            self._renew_at = self._now() + min(first * 2**self._failures, longest)
            self._failures = min(self._failures + 1, 10)
            self._problem = f"waiting for an API key: {error.message}"
            self.on_failure(error.message)

    def _fetch(self) -> Token:
        try:
            token = self._source()
        except UsageError:
            raise
        except Exception as error:  # libraries have errors of many kinds, and all mean that there is no key
            reason = one_line(f"{type(error).__name__}: {error}")[:ERROR_CHARACTERS_MAX]
            raise UsageError(f"no API key: {reason}", hint="check the credentials of this machine") from None
        if not is_key(token.key):
            raise UsageError(
                "the API key command printed no key: a key has no space and no line end",
                hint='print the key alone on the first line, or JSON {"key": …, "expires_at": …}',
            )
        return token

    def _keep(self, token: Token) -> None:
        now = self._now()
        if token.ends_at is None:
            self._renew_at = now + self._seconds
        elif token.ends_at <= now:
            raise UsageError("the API key command gave a key that has expired", hint="check its `expires_at`")
        else:
            left = token.ends_at - now
            self._renew_at = token.ends_at - min(LEAD_SECONDS_MAX, left * LEAD_SHARE)
        self._token, self._failures = token, 0

    def _now(self) -> float:
        return self._clock.now_ms() / 1000


def credentials_for(endpoint: Endpoint, settings: Settings, environ: Mapping[str, str]) -> Credentials | str | None:
    """The key of an endpoint in this process, from a command, a library, or the variable of the key.

    A command that is named for the provider wins over the variable, and one of the setting over one in the table of
    providers. One for no provider in particular is for endpoints without a key, and for one host alone: a key must
    never be sent to another provider.
    """
    named, plain = _commands(settings.api_key_command)
    own = settings.providers.get(endpoint.api)
    command = named.get(endpoint.api) or (None if own is None else own.api_key_command)
    key = None if command is not None else key_of(endpoint, environ)
    if command is None and key is None:
        command = plain or provider_named(endpoint.api).access.token_source
        if command is not None and command == plain:
            _bind(json.dumps(plain), urlsplit(endpoint.base_url).netloc)
    if command is None:
        return key
    return _credentials(json.dumps(command), settings.api_key_minutes)


_bound: dict[str, str] = {}  # which host gets the keys of a command that names no provider


def _bind(command: str, host: str) -> None:
    if (first := _bound.setdefault(command, host)) != host:
        hint = f'write {SETTING} as JSON with a command for each provider: {{"azure": "…", "anthropic": "…"}}'
        raise UsageError(f"the API key command is used for {first}, so its keys are not sent to {host}", hint=hint)


def _commands(setting: object) -> tuple[dict[str, KeyCommand], KeyCommand | None]:
    if isinstance(setting, Mapping):
        for name in setting:
            provider_named(name)  # a misspelt name would be ignored silently
        return dict(setting), None
    if setting is None or isinstance(setting, str | list | tuple):
        return {}, setting or None
    raise TypeError(f"a command cannot be {type(setting).__name__}")


@lru_cache(maxsize=100)
def _credentials(command: str, minutes: float) -> Credentials:
    """The credentials of a command; there is one object for each command, so all connections of a process share a
    key."""
    return Credentials(command, source_of(json.loads(command)), minutes)


def source_of(command: KeyCommand) -> TokenSource:
    """The source that a command stands for; the names of libraries are commands too."""
    if isinstance(command, str) and command in SOURCES:
        return SOURCES[command]()
    words = split_command(command)
    return lambda: read_output(_run(words))


def split_command(command: KeyCommand) -> list[str]:
    """The words of a command. No shell reads them."""
    try:
        words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    except ValueError as error:
        raise UsageError(f"the API key command is not valid: {error}", hint="check its quotes") from None
    if not words:
        raise UsageError("the API key command is empty", hint="give a command that prints the key")
    return words


def _run(words: Sequence[str]) -> str:
    name = os.path.basename(words[0])
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        raise UsageError(f"the API key command {name} cannot be run: {error.strerror}", hint=_CHECK) from None
    try:
        said, wrong = process.communicate(timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with its children, which may hold its output open
        process.communicate()
        raise UsageError(f"the API key command {name} did not end within {COMMAND_SECONDS:g} s", hint=_CHECK) from None
    if process.returncode != 0:
        lines = wrong[:OUTPUT_BYTES_MAX].decode("utf-8", "replace").strip().splitlines()
        why = f": {one_line(lines[-1])[:ERROR_CHARACTERS_MAX]}" if lines else ""
        raise UsageError(f"the API key command {name} failed with exit code {process.returncode}{why}", hint=_CHECK)
    return said[:OUTPUT_BYTES_MAX].decode("utf-8", "replace")


_CHECK: Final = "run it by hand to see what is wrong"


def read_output(said: str) -> Token:
    """The first line, or a JSON object with the key and its end. The output is never part of an error."""
    text = said.strip()
    if not text.startswith("{"):
        return Token(text.partition("\n")[0].strip())
    try:
        found = json.loads(text)
        if not isinstance(found["key"], str):
            raise TypeError
        return Token(found["key"], _end_of(found.get("expires_at")))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise UsageError(
            "the API key command printed JSON without a valid `key` and `expires_at`",
            hint='print {"key": "…", "expires_at": "2030-01-31T12:00:00Z"}; expires_at may be seconds since 1970',
        ) from None


def _end_of(said: object) -> float | None:
    if said is None:
        return None
    if isinstance(said, int | float) and not isinstance(said, bool):
        return float(said)
    moment = datetime.fromisoformat(str(said))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_GOOGLE_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_AZURE_SCOPE: Final = "https://cognitiveservices.azure.com/.default"


def google_tokens() -> TokenSource:
    """Google's Application Default Credentials."""
    try:
        from google.auth import default
        from google.auth.transport.requests import Request
    except ImportError:
        raise UsageError("google-auth is not installed", hint="pip install 'backstay[google]'") from None

    def fetch() -> Token:
        credentials, _ = default(scopes=[_GOOGLE_SCOPE])
        credentials.refresh(Request())  # type: ignore[no-untyped-call]
        ends = credentials.expiry  # without a zone, in UTC
        return Token(str(credentials.token), None if ends is None else ends.replace(tzinfo=UTC).timestamp())

    return fetch


def azure_tokens() -> TokenSource:
    """Microsoft Entra's tokens for Azure OpenAI."""
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError:
        raise UsageError("azure-identity is not installed", hint="pip install 'backstay[azure]'") from None
    # It warns before each error that it raises, on several lines: only for those who asked for logs.
    logging.getLogger("azure.identity").addHandler(logging.NullHandler())

    def fetch() -> Token:
        with DefaultAzureCredential() as credential:
            token = credential.get_token(_AZURE_SCOPE)
        return Token(token.token, float(token.expires_on))

    return fetch


SOURCES: Final[dict[str, Callable[[], TokenSource]]] = {"google-auth": google_tokens, "azure-identity": azure_tokens}
