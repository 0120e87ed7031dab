"""Settings from flags, environment and file, in that order. Each is checked, and errors name it."""

import difflib
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from backstay.clock import new_secret
from backstay.core.breaker import BreakerPolicy
from backstay.core.errors import UsageError
from backstay.core.failures import GATEWAY, RetryPolicy
from backstay.core.limits import Limits, profile_named
from backstay.core.models import OWNER_CHARACTERS_MAX, require_owner
from backstay.core.pace import read_rate

PREFIX: Final = "BACKSTAY_"
FILE_NAME: Final = "backstay.toml"
KEY_FILE: Final = "secret.key"  # beside the database, or in the folder of files
COST_MAX: Final = 1_000_000  # dollars, of one call


KEY_LENGTH_MIN: Final = 20  # of a text that looks like a key because it has letters of both cases and digits
_KEY: Final = re.compile(
    r"(?:[spr]k[-_]|gsk_|xai-|AIza|ya29\.|A[KS]IA[0-9A-Z]{12}|hf_|fw_|r8_|tgp_|eyJ|[Bb]earer )[\w.-]*", re.ASCII
)
_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class ProviderSettings(BaseModel):
    """What the settings file says about one provider. A key is never in it, only the name of its variable, or a
    command."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: str | None = None
    api_key_env: str | None = Field(None, repr=False)
    api_key_command: str | list[str] | None = Field(None, repr=False)
    headers: dict[str, str] = Field(default_factory=dict, repr=False)  # further ones: name, and variable of its value
    rpm: int | None = Field(None, ge=1)
    tpm: int | None = Field(None, ge=1)
    itpm: int | None = Field(None, ge=1)
    otpm: int | None = Field(None, ge=1)
    rpd: int | None = Field(None, ge=1)
    concurrency: int | None = Field(None, ge=1, le=10_000)
    timeout_seconds: float | None = Field(None, gt=0, le=86_400)
    budget: float | None = Field(None, ge=0, le=COST_MAX)  # dollars a month, of all requests that go there
    circuit_window: int | None = None
    circuit_fail_threshold: float | None = None
    circuit_cooldown_ms: int | None = None

    @field_validator("api_key_env", "headers")
    @classmethod
    def _check_names(cls, value: Any) -> Any:
        for name in value.values() if isinstance(value, dict) else [value]:
            if name is not None and (_looks_like_key(name) or not _VARIABLE.fullmatch(name)):
                raise ValueError(f"it must be the name of an environment variable{_NO_KEYS}")
        return value

    @field_validator("base_url", "api_key_command")
    @classmethod
    def _check_no_key(cls, value: Any) -> Any:
        words = value if isinstance(value, list) else str(value).split()
        if any(_KEY.fullmatch(word.partition("=")[2] or word) and len(word) >= KEY_LENGTH_MIN for word in words):
            raise ValueError(f"it contains what looks like an API key{_NO_KEYS}")
        return value


_NO_KEYS: Final = "; keys do not belong in the settings file: name their variable with api_key_env"


def _looks_like_key(text: str) -> bool:
    mixed = all(any(test(letter) for letter in text) for test in (str.islower, str.isupper, str.isdigit))
    return _KEY.fullmatch(text) is not None or (mixed and len(text) >= KEY_LENGTH_MIN)


class Settings(BaseModel):
    """All settings. In the environment each is BACKSTAY_ and its name in capitals."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    database_url: str | None = Field(None, repr=False)
    owner: str = Field("local", min_length=1, max_length=OWNER_CHARACTERS_MAX)
    profile: str = "balanced"
    app: str | None = None
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$")
    log_format: str = Field("auto", pattern="^(auto|json|console)$")
    start_wait_seconds: float = Field(60, ge=0, le=86_400)  # if PostgreSQL cannot be reached at the start

    # Short names for the settings that are changed most often. They win over the limit of the same meaning.
    retry_max_attempts: int | None = Field(None, ge=1, le=1000)
    retry_base_delay_ms: int | None = Field(None, ge=0, le=3_600_000)
    retry_jitter_max_ms: int | None = Field(None, ge=0, le=3_600_000)
    worker_lease_ttl_sec: float | None = None
    worker_concurrency: int | None = None
    gateway_timeout_ms: int | None = Field(None, ge=1)
    gateway_url: str | None = None
    gateway_rate: str | None = None  # calls by all workers together: 100/min
    gateway_cost: float | None = Field(None, ge=0, le=COST_MAX)  # dollars, the most that a call costs
    uploads_dir: str | None = None
    results_dir: str | None = None
    circuit_window: int | None = None
    circuit_fail_threshold: float | None = None
    circuit_cooldown_ms: int | None = None

    http: Literal["own", "aiohttp"] = "own"  # the HTTP client for calls to providers
    # A command that prints the API key: a line, a list of words, or one of these for each provider. It is run again
    # before the key ends, or after so many minutes if that is not known.
    api_key_command: str | list[str] | dict[str, str | list[str]] | None = Field(None, repr=False)
    api_key_minutes: float = Field(15, gt=0, le=10_000)
    item_events: bool = False  # write an event for every change of an item's state, for webhooks and the broker

    # The broker.
    broker_url: str | None = Field(None, repr=False)  # amqp://user:password@host:5672/vhost
    broker_prefix: str = "backstay"  # the prefix of its exchanges and queues: a different one for each database
    broker_queues: Literal["classic", "quorum"] = "classic"
    broker_dead_messages: int = Field(100_000, ge=1, le=100_000_000)  # that the dead queue keeps: the newest,
    broker_dead_days: float = Field(14, gt=0, le=3650)  # and for how long

    # The service.
    data: str | None = None  # a folder, or s3://bucket/prefix: uploads, results, logs, archives
    redis_url: str | None = Field(None, repr=False)
    secret_key: str | None = Field(None, repr=False, min_length=32)  # signs webhooks and callbacks
    public_url: str | None = None  # where the service is reached from outside, for callbacks
    trusted_proxies: str = ""  # addresses or networks whose X-Forwarded-For and X-Forwarded-Proto are trusted
    inside_hosts: str = ""  # host:port of internal services that webhooks, callbacks and gateways may reach
    remote_kinds: str = ""  # kinds of remote work and their deadlines: writing:1200, speaking:3600
    remote_rate: str | None = None  # requests to remote workers, by all workers together: 100/min
    remote_cost: float | None = Field(None, ge=0, le=COST_MAX)  # dollars, the most that an item costs
    remote_exchanges: str = ""  # the only ones that remote items may name, separated by commas; empty: any but our own
    upload_max_bytes: int = Field(1 << 30, ge=1)
    file_days: float = Field(30, gt=0, le=3650)
    cache_seconds: float = Field(300, ge=0, le=86_400)
    rate_limit_per_minute: int = Field(6_000, ge=1)  # requests of one key

    # Dead letters: how many an owner may hold; more are archived. More than the alarm's number in a day raises the
    # alarm.
    dead_letter_days: float = Field(7, gt=0, le=3650)
    dead_letter_items: int = Field(10_000, ge=0, le=1_000_000)
    dead_letter_bytes: int = Field(1 << 30, ge=0, le=1 << 50)
    dead_letter_alarm: int = Field(100, ge=1, le=100_000)

    # Ended jobs: how long and how many of them each owner keeps; None: for ever, and all.
    job_days: float | None = Field(None, gt=0, le=36_500)
    job_count: int | None = Field(None, ge=0, le=1_000_000)
    job_archive: bool = False  # write each to a file before it is deleted

    # Alarms are raised above these values.
    alarm_timeouts: int = Field(100, ge=1, le=100_000)  # items that timed out, in a day
    alarm_failed_jobs_percent: int = Field(10, ge=1, le=100)  # of the jobs that ended in a day
    alarm_invocation_errors_percent: int = Field(5, ge=1, le=100)  # of a day's ticks
    alarm_chains: int = Field(2, ge=0, le=100_000)  # that ended at their depth with work left, in an hour
    alarm_outbox_seconds: int = Field(60, ge=1)  # that the oldest message has waited
    alarm_transaction_seconds: int = Field(600, ge=1)  # that the oldest transaction has been open

    # Traces over OpenTelemetry; where they go is in its own variables, OTEL_EXPORTER_OTLP_ENDPOINT and the others.
    otel: bool = False
    otel_items_share: float = Field(0.01, ge=0, le=1)  # of a job's items after the first ten
    otel_tell_providers: bool = False  # send the traceparent with calls to providers, too

    # What is different for single providers, by their names. Only in the file.
    providers: dict[str, ProviderSettings] = Field(default_factory=dict)

    # single limits that override the profile's, by their names
    limits: dict[str, int | float] = Field(default_factory=dict)

    @field_validator("api_key_command", mode="before")
    @classmethod
    def _read_command(cls, value: Any) -> Any:
        """In the environment, lists and objects are JSON."""
        if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
            try:
                return json.loads(value)
            except ValueError:
                raise ValueError("it begins like JSON and is not valid JSON") from None
        return value

    def bounds(self) -> Limits:
        """The profile's limits, overridden by the single settings."""
        changes: dict[str, Any] = dict(self.limits)
        if self.worker_lease_ttl_sec is not None:
            changes["lease_seconds"] = self.worker_lease_ttl_sec
            # A shorter lease needs a faster heartbeat and an earlier guard; both can still be set separately.
            third = self.worker_lease_ttl_sec / 3
            profile = profile_named(self.profile)
            for name in ("heartbeat_seconds", "send_guard_seconds"):
                changes.setdefault(name, min(getattr(profile, name), third))
        if self.worker_concurrency is not None:
            changes["worker_concurrency"] = self.worker_concurrency
        if self.gateway_timeout_ms is not None:
            changes["call_timeout_seconds"] = self.gateway_timeout_ms / 1000
        known = {field.name for field in fields(Limits)}
        for name in changes.keys() - known:
            raise UsageError(f"there is no limit {name!r}", hint=f"known: {', '.join(sorted(known))}")
        return replace(profile_named(self.profile), **changes)

    def call_seconds(self) -> float | None:
        """The time limit of one call, if it is set; otherwise each lane of LLM requests has its own."""
        if self.gateway_timeout_ms is not None:
            return self.gateway_timeout_ms / 1000
        return self.limits.get("call_timeout_seconds")

    def gateway_policy(self) -> RetryPolicy:
        return self.retry_policy(GATEWAY)

    def retry_policy(self, usual: RetryPolicy) -> RetryPolicy:
        """The usual policy, changed by the settings. A first delay above the longest one raises the longest one."""
        base = usual.base_ms if self.retry_base_delay_ms is None else self.retry_base_delay_ms
        return replace(
            usual,
            attempts_max=self.retry_max_attempts or usual.attempts_max,
            base_ms=base,
            cap_ms=max(usual.cap_ms, base),
            jitter_ms=usual.jitter_ms if self.retry_jitter_max_ms is None else self.retry_jitter_max_ms,
        )

    def breaker_policy(self, provider: str | None = None) -> BreakerPolicy:
        """For all handlers, or for an LLM provider, which may have figures of its own."""
        own = self.providers.get(provider or "", NO_PROVIDER_SETTINGS)
        window = self.circuit_window if own.circuit_window is None else own.circuit_window
        share = own.circuit_fail_threshold
        open_ms = own.circuit_cooldown_ms
        changes: dict[str, Any] = {
            "window_calls": window,
            # The minimum number of calls must not be above the window, or the breaker could never open.
            "calls_min": None if window is None else min(window, BreakerPolicy().calls_min),
            "fail_ratio": self.circuit_fail_threshold if share is None else share,
            "open_ms": self.circuit_cooldown_ms if open_ms is None else open_ms,
        }
        return BreakerPolicy(**{name: value for name, value in changes.items() if value is not None})


NO_PROVIDER_SETTINGS: Final = ProviderSettings()  # type: ignore[call-arg]  # all of its fields have defaults
_ONLY_IN_FILE: Final = ("limits", "providers")


def load(flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Flags win over the environment, which wins over backstay.toml in the working folder."""
    environ = os.environ if environ is None else environ
    file, environment = _from_file(environ), _from_environment(environ)
    values: dict[str, Any] = {**file, **environment}
    if isinstance(file.get("limits"), dict) and "limits" in environment:
        values["limits"] = {**file["limits"], **environment["limits"]}  # setting one of them does not unset the others
    values.update({name: value for name, value in (flags or {}).items() if value is not None})
    try:
        loaded = Settings(**values)
    except ValidationError as error:
        raise _usage_error(error, environ) from None  # the error itself shows values, which may be secrets
    require_owner(loaded.owner)
    for name in ("gateway_rate", "remote_rate"):
        _check_rate(name, getattr(loaded, name))
    return loaded


def _check_rate(name: str, rate: str | None) -> None:
    try:
        if rate is not None:
            read_rate(rate)
    except UsageError as error:
        raise UsageError(f"setting {name}: {error.message}", hint=error.hint) from None


def origins(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Where each setting that the environment or the file names was read from; a single limit is limits.NAME."""
    environ = os.environ if environ is None else environ
    file = _file_of(environ).name
    found: dict[str, str] = {}
    for values, of in ((_from_file(environ), lambda _: file), (_from_environment(environ), _variable)):
        single = values.get("limits") or {}
        found.update({name: of(name) for name in values if name != "limits"})
        found.update({f"limits.{name}": of(name) for name in single})
    return found


def _file_of(environ: Mapping[str, str]) -> Path:
    return Path(environ.get(f"{PREFIX}CONFIG") or FILE_NAME)


def _variable(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def variables() -> list[str]:
    """The names of all settings and single limits in the environment."""
    own = (name for name in Settings.model_fields if name not in _ONLY_IN_FILE)
    names = [*own, *(field.name for field in fields(Limits))]
    return [_variable(name) for name in dict.fromkeys(names)]


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables with our prefix that are not settings."""
    return sorted(name for name in environ.keys() - set(variables()) if name.startswith(PREFIX))


def _from_file(environ: Mapping[str, str]) -> dict[str, Any]:
    named, path = environ.get(f"{PREFIX}CONFIG"), _file_of(environ)
    try:
        if not path.is_file():
            if named:
                raise UsageError(f"there is no settings file {path.name}", hint=f"check {PREFIX}CONFIG")
            return {}
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path.name}: {error.strerror}", hint=f"check it, or {PREFIX}CONFIG") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path.name} is not valid TOML: {error}") from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    limits: dict[str, int | float] = {}
    known_limits = {field.name for field in fields(Limits)}
    for key, value in environ.items():
        name = key.removeprefix(PREFIX).lower()
        # An empty variable counts as unset: compose files and systemd units pass variables on even when they are not
        # set.
        if not key.startswith(PREFIX) or name == "config" or not value:
            continue
        if name in Settings.model_fields and name not in _ONLY_IN_FILE:
            values[name] = value
        elif name in known_limits:
            limits[name] = _number(key, value)
    return {**values, "limits": limits} if limits else values


def _number(key: str, value: str) -> int | float:
    """A whole number stays a whole number: limits that count things accept no other."""
    try:
        return int(value) if value.strip().lstrip("+-").isdigit() else float(value)
    except ValueError:
        raise UsageError(f"{key} must be a number, not {value!r}") from None


def _usage_error(error: ValidationError, environ: Mapping[str, str]) -> UsageError:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["loc"][0] == "providers":
        return _usage_error_of_provider(name, first, environ)
    if first["type"] == "extra_forbidden":
        return UsageError(f"{_file_of(environ).name}: there is no setting {name!r}", hint=_nearest(name))
    return UsageError(f"setting {name}: {first['msg']}", hint=f"set it in backstay.toml, or as {PREFIX}{name.upper()}")


def _usage_error_of_provider(name: str, first: Any, environ: Mapping[str, str]) -> UsageError:
    """Never with the value: it may be a key."""
    file, said = _file_of(environ).name, str(first["msg"]).removeprefix("Value error, ")
    if first["type"] != "extra_forbidden":
        return UsageError(f"{file}: {name}: {said}", hint="see docs/settings.md, Providers")
    close = difflib.get_close_matches(name.rpartition(".")[2], [*ProviderSettings.model_fields], n=1)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(ProviderSettings.model_fields)}"
    if re.search("key|token|secret", name.rpartition(".")[2], re.IGNORECASE):
        hint = 'a key does not belong in the file: api_key_env = "NAME" names the variable that holds it'
    return UsageError(f"{file}: there is no setting {name!r}", hint=hint)


def _nearest(name: str) -> str:
    """What may be meant by a name that no setting has."""
    limits = [field.name for field in fields(Limits)]
    close = difflib.get_close_matches(name, [*Settings.model_fields, *limits], n=1)
    if not close:
        return "remove it, or correct its name"
    return f"did you mean {close[0]}{'' if close[0] in Settings.model_fields else ' under [limits]'}?"


def default_file() -> Path:
    """The user's own database, if nothing names another."""
    data = os.environ.get("XDG_DATA_HOME") or ""
    home = Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share"
    return home / "backstay" / "backstay.db"


def key_beside(folder: Path) -> str:
    """The key of a service on one machine: made once, readable by nobody else. The file may hold several."""
    path = folder / KEY_FILE
    if not path.exists():
        _make_key(path)
    return path.read_text(encoding="ascii").strip()


def _make_key(path: Path) -> None:
    """Creates the file as a whole or not at all: another process may start now, create it as well, and read it at
    once."""
    handle, draft = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(new_secret())
        os.link(draft, path)
    except FileExistsError:
        pass  # the other process's key counts
    finally:
        os.unlink(draft)
