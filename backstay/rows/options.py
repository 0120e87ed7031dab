"""The options of `map` and its relatives, checked and translated into the terms of a run."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from backstay import settings
from backstay.app import Backstay
from backstay.core.errors import UsageError
from backstay.core.models import ANSWER_FLAWS
from backstay.llm.formats import InputOptions
from backstay.llm.prices import parse_price
from backstay.llm.providers import provider_names
from backstay.llm.schemas import REASKS_DEFAULT, REASKS_MAX
from backstay.rows.prompts import PromptOptions
from backstay.run.options import ALWAYS, CHEAPEST, CONCURRENCY_MAX, NEVER, Reuse, RunOptions

if TYPE_CHECKING:
    from backstay.rows.results import Results

Lane = Literal["call", "background", "batch", "cheapest"]
ReuseOption = Literal["always", "never"] | float  # or the maximal age of an answer, in seconds

# The names of these options in other libraries.
_OTHER_NAMES: Final = {
    **dict.fromkeys(("response_format", "response_model", "output_type", "return_format", "data_model"), "schema"),
    **dict.fromkeys(("max_output_tokens", "max_completion_tokens"), "max_tokens"),
    **dict.fromkeys(("store", "database"), "db"),
    **dict.fromkeys(("max_workers", "max_concurrency", "workers"), "concurrency"),
}
_TEXTS: Final = (
    "model",
    "endpoint",
    "system",
    "provider",
    "base_url",
    "api_key_env",
    "api_key_command",
    "price",
    "fallback",
    "label",
    "id",
    "nulls",
    "prefix",
)
_FLAGS: Final = ("reconcilable", "dedupe", "new", "wait", "progress")
_FUNCTIONS: Final = ("check", "confirm")
_LISTS: Final = ("header", "fail_on")
_SECONDS: Final = ("timeout", "deadline")
SECONDS_MAX: Final = 10**9
_REUSES: Final = {"always": ALWAYS, "never": NEVER}
_FLAG: Final = re.compile(r"--([a-z][a-z-]*[a-z])")
_FLAG_NAMES: Final = {"max-output-tokens": "max_tokens", "prompt": "prompt", "fallback": "fallback"}


class SendOptions(TypedDict, total=False):
    """What requests are sent with, whoever makes them: rows, or another library's calls."""

    model: str | None
    endpoint: str | None
    system: str | None
    max_tokens: int | None
    temperature: float | None
    extra: Mapping[str, Any] | None
    provider: str | None
    base_url: str | None
    api_key_env: str | None
    api_key_command: str | None
    header: Sequence[str]
    lane: Lane
    budget: float | None
    price: str | None
    concurrency: int
    rpm: int | None
    tpm: int | None
    itpm: int | None
    otpm: int | None
    rpd: int | None
    timeout: float | None
    deadline: float | None
    delivery: Literal["at_least_once", "at_most_once"] | None
    reconcilable: bool
    fallback: str | None
    fail_on: Sequence[str]
    dedupe: bool
    new: bool
    wait: bool
    label: str | None
    reuse: ReuseOption
    reasks: int
    check: Callable[[Any], object] | None
    progress: bool | None
    db: str | Path | None


class MapOptions(SendOptions, total=False):
    """What `map`, `amap`, `imap`, `plan` and `run_file` take besides rows, prompt and schema, each of them by name."""

    id: str | None
    nulls: str | None
    samples: int
    on_error: Literal["return", "raise"]
    prefix: str
    sample: int | None
    confirm: "Callable[[Results[Any]], bool] | None"


@dataclass(frozen=True, slots=True)
class MapTerms:
    """The options of one call, checked."""

    run: RunOptions
    reading: InputOptions
    prompt: PromptOptions
    id: str | None = None
    samples: int = 1
    on_error: str = "return"
    prefix: str = ""
    progress: bool | None = None
    sample: int | None = None
    confirm: "Callable[[Results[Any]], bool] | None" = None
    db: str | Path | None = None
    wait: bool = False
    label: str | None = None
    reasks: int = REASKS_DEFAULT
    check: Callable[[Any], object] | None = None


def read_options(given: MapOptions) -> MapTerms:
    _refuse_unknown(given)
    _check_types(given)
    lane = _one_of("lane", given.get("lane", "call"), ("call", "background", "batch", CHEAPEST))
    on_error = _one_of("on_error", given.get("on_error", "return"), ("return", "raise"))
    model = sent_model(given)
    return MapTerms(
        run=_run_options(given, lane),
        reading=InputOptions(model=model, endpoint=given.get("endpoint")),
        prompt=PromptOptions(given.get("system"), body_members(given), given.get("nulls")),
        samples=_whole("samples", given.get("samples", 1), 1, 1_000),
        sample=None if given.get("sample") is None else _whole("sample", given["sample"], 1, 1_000),
        on_error=on_error,
        reasks=_whole("reasks", given.get("reasks", REASKS_DEFAULT), 0, REASKS_MAX),
        check=given.get("check"),
        id=given.get("id"),
        prefix=given.get("prefix", ""),
        progress=given.get("progress"),
        confirm=given.get("confirm"),
        db=given.get("db"),
        wait=given.get("wait", False),
        label=given.get("label"),
    )


def _run_options(given: MapOptions, lane: str) -> RunOptions:
    price, fail_on = given.get("price"), tuple(given.get("fail_on", ()))
    for flaw in fail_on:
        _one_of("fail_on", flaw, tuple(flaw.value for flaw in ANSWER_FLAWS))
    limits: dict[str, Any] = {
        name: None if given.get(name) is None else _whole(name, given[name], 1, 10**12)
        for name in ("rpm", "tpm", "itpm", "otpm", "rpd")
    }
    return RunOptions(
        base_url=given.get("base_url"),
        provider=given.get("provider"),
        lane=lane,
        api_key_env=given.get("api_key_env"),
        api_key_command=given.get("api_key_command"),
        header=tuple(given.get("header", ())),
        concurrency=_whole("concurrency", given.get("concurrency", 100), 1, CONCURRENCY_MAX),
        timeout=given.get("timeout"),
        deadline=given.get("deadline"),
        delivery=given.get("delivery"),
        price=None if price is None else parse_price(price),
        budget=_micros(given.get("budget")),
        max_output_tokens=given.get("max_tokens"),
        reconcilable=given.get("reconcilable", False),
        dedupe=given.get("dedupe", True),
        new=given.get("new", False),
        fail_on=fail_on,
        fallback=given.get("fallback"),
        reuse=_reuse(given.get("reuse")),
        **limits,
    )


def body_members(given: SendOptions) -> dict[str, Any]:
    """The members that every request has. Models of OpenAI itself know the bound on a reply by another name."""
    body = dict(given.get("extra") or {})
    if given.get("temperature") is not None:
        body.setdefault("temperature", given["temperature"])
    if given.get("max_tokens") is not None:
        at_openai = given.get("base_url") is None and given.get("provider") in (None, "openai", "azure")
        model = (sent_model(given) or "").partition(":")[0]
        named = model in provider_names() and model not in ("openai", "azure")
        body.setdefault("max_completion_tokens" if at_openai and not named else "max_tokens", given["max_tokens"])
    return body


def sent_model(given: SendOptions) -> str | None:
    """`openai/gpt-5-mini` is written as other libraries write it; with a provider named, the slash is the model's."""
    model = given.get("model")
    if not model or given.get("provider") or given.get("base_url"):
        return model
    name, slash, rest = model.partition("/")
    return f"{name}:{rest}" if slash and rest and name in provider_names() else model


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    known = MapOptions.__annotations__
    for name in given.keys() - known.keys():
        near = _OTHER_NAMES.get(name) or next(iter(get_close_matches(name, [*known, "schema"], 1)), None)
        hint = f"did you mean {near}=?" if near else f"known: schema, {', '.join(known)}"
        raise UsageError(f"there is no option {name!r}", hint=hint)


def _check_types(given: Mapping[str, Any]) -> None:
    """What is not of its type is refused here: deep inside of a run it would break a request, or keep it for ever."""
    for name, value in given.items():
        if value is None:
            continue
        if name in _TEXTS and not isinstance(value, str):
            raise UsageError(f"{name} must be a text, not {value!r}")
        if name in _FLAGS and not isinstance(value, bool):
            raise UsageError(f"{name} must be True or False, not {value!r}")
        if name in _FUNCTIONS and not callable(value):
            raise UsageError(f"{name} must be a function, not {value!r}")
        if name in _LISTS and (isinstance(value, str) or not all(isinstance(each, str) for each in value)):
            raise UsageError(f"{name} must be a list of texts, not {value!r}")
        if name in _SECONDS and not (_is_number(value) and 0 < value <= SECONDS_MAX):
            raise UsageError(f"{name} must be seconds above 0, not {value!r}")
    temperature, max_tokens, extra = given.get("temperature"), given.get("max_tokens"), given.get("extra")
    if temperature is not None and not (_is_number(temperature) and math.isfinite(temperature)):
        raise UsageError(f"temperature must be a number, not {temperature!r}")
    if max_tokens is not None:
        _whole("max_tokens", max_tokens, 1, 10**9)
    _check_extra({} if extra is None else extra)


def _check_extra(extra: object) -> None:
    if not isinstance(extra, Mapping):
        raise UsageError(f"extra must be a dict of further members of a body, not {extra!r}")
    try:
        json.dumps(dict(extra), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"extra cannot be sent as JSON: {error}") from None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _micros(budget: object) -> int | None:
    if budget is None:
        return None
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not 0 < budget < 1e12:
        raise UsageError(f"budget must be dollars above 0, not {budget!r}", hint="for example budget=5.00")
    micros = round(budget * 1_000_000)
    if micros < 1:
        raise UsageError(f"budget must be at least a millionth of a dollar, not {budget!r}")
    return micros


def _reuse(reuse: object) -> Reuse | None:
    if reuse is None:
        return None
    if isinstance(reuse, str) and reuse in _REUSES:
        return _REUSES[reuse]
    if isinstance(reuse, int | float) and not isinstance(reuse, bool) and 0 < reuse < math.inf:
        return Reuse(age_seconds=reuse)
    raise UsageError(f"reuse must be 'always', 'never' or seconds above 0, not {reuse!r}")


def _whole(name: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError(f"{name} must be a whole number from {least:,} to {most:,}, not {value!r}")
    return value


def _one_of(name: str, value: object, known: Sequence[str]) -> str:
    if value not in known:
        raise UsageError(f"{name} must be one of {', '.join(known)}, not {value!r}")
    return str(value)


def in_python(error: UsageError) -> UsageError:
    """Rewrites an error of a lower layer, which names options as the commands do (`--budget` becomes `budget=`)."""

    def name(flag: re.Match[str]) -> str:
        return f"{_FLAG_NAMES.get(flag[1], flag[1].replace('-', '_'))}="

    said = UsageError(_FLAG.sub(name, error.message), hint=_FLAG.sub(name, error.hint))
    return said


def open_app(db: str | Path | None) -> Backstay:
    """Opens the given database, that of the settings, or the user's own, in the order that `backstay run` has."""
    if isinstance(db, Path) or (db is not None and "://" not in db):
        db = f"sqlite:///{db}"
    url = db or settings.load().database_url
    if url is None:
        file = settings.default_file()
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            said = f"cannot create the folder {file.parent}: {error.strerror}"
            raise UsageError(said, hint="choose a database with db=") from None
        url = f"sqlite:///{file}"
    return Backstay(url)
