"""`backstay plan`: what a file of requests will take, before anything is sent."""

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from backstay.cli import output
from backstay.cli.command import Command, Duration, json_option, place_options
from backstay.cli.request_options import (
    LANES,
    RequestOptions,
    base_url_option,
    dedupe_option,
    fallback_option,
    further_limit_options,
    max_output_tokens_option,
    price_option,
    reasks_option,
    request_options,
    require_schema,
    reuse_option,
    schema_option,
    tell_bad_lines,
)
from backstay.cli.show import unknown_requests
from backstay.core.display import show_money, show_seconds
from backstay.core.errors import UsageError
from backstay.llm.repeated_requests import show_known
from backstay.run.options import ALWAYS, CHEAPEST, Destination, reasks_of, too_few_for_batches

if TYPE_CHECKING:
    from backstay.core.limits import Limits
    from backstay.llm.forecast import Forecast, ForecastShare, PaceLimits
    from backstay.llm.intake import FileSurvey, RequestSource

UNKNOWN = "unknown"
UNBOUNDED = "unbounded"
BATCH_SECONDS = 86_400  # the window of all providers' batches


@click.command(
    "plan",
    cls=Command,
    examples=(
        "backstay plan requests.jsonl",
        "backstay plan requests.jsonl --lane batch --price 0.15/0.60",
        "backstay plan prompts.jsonl --model gpt-4o-mini --provider openai --provider azure",
        "backstay plan rows.csv --prompt 'Translate: {text}' --model gpt-4o-mini --rpm 500 --latency 2s",
    ),
)
@click.argument("file", metavar="FILE", type=click.Path(allow_dash=True))
@request_options
@click.option(
    "--provider", "providers", multiple=True, metavar="NAME", help="As for `run`. Given several times: compares them."
)
@click.option("--compare", is_flag=True, help="Compare the lanes of all --provider, or of all whose key is set.")
@base_url_option
@click.option("--lane", type=LANES, default="call", show_default=True, help="How the requests will be sent.")
@price_option
@max_output_tokens_option
@click.option("--output-tokens", type=click.IntRange(1), help="Tokens of a typical reply. Default: 300.")
@click.option("--rpm", type=click.IntRange(1), help="Requests per minute.")
@click.option("--tpm", type=click.IntRange(1), help="Tokens per minute, input and output.")
@further_limit_options
@click.option("--concurrency", type=click.IntRange(1), default=100, show_default=True, help="Concurrent requests.")
@click.option("--latency", type=Duration(), help="How long a reply takes: 0.8, 2s.")
@click.option("--deadline", type=Duration(), help="When the lane `cheapest` must be done, for example 24h.")
@fallback_option
@dedupe_option
@schema_option
@reasks_option
@reuse_option
@place_options
@json_option
def plan(
    file: str,
    wanted: RequestOptions,
    providers: tuple[str, ...],
    compare: bool,
    base_url: str | None,
    lane: str,
    fallback: str | None,
    **given: Any,
) -> None:
    """Reads FILE (`-`: stdin) as a run would, and estimates it: requests, tokens, cost, time.

    Nothing is sent or stored. If there is a database, requests that an earlier run has answered count as known, and
    only the rest is estimated. Lines that cannot be sent are listed, with exit code 2, unless --skip-bad-lines is
    given. Tokens are estimates: `low` assumes replies of one token; `worst` is the most
    that a run can cost. --compare shows cost and time of the same file at each provider, in each of its lanes. With
    --fallback, `worst` takes the most expensive provider of each request.
    """
    require_schema(given["schema"], given["reasks"])
    given["reuse"] = given["reuse"] or ALWAYS
    if (compare or len(providers) > 1) and fallback is not None:
        raise UsageError(
            "--fallback cannot be used when providers are compared", hint="leave it out, or name one --provider"
        )
    if compare or len(providers) > 1:
        _compare(file, wanted, providers, base_url, given)
    else:
        destination = Destination(
            next(iter(providers), None), base_url, lane, fallback=fallback, schema=given["schema"]
        )
        destination.check_fallbacks()
        _plan(file, wanted, destination, given)


def _compare(
    file: str, wanted: RequestOptions, providers: tuple[str, ...], base_url: str | None, given: dict[str, Any]
) -> None:
    from backstay.llm.providers import provider_named, providers_with_keys

    if file == "-" or base_url is not None:
        given_wrong = "stdin" if file == "-" else "--base-url"
        raise UsageError(f"{given_wrong} cannot be compared at several providers", hint="give a file, and --provider")
    names = list(dict.fromkeys(providers)) or providers_with_keys(os.environ)
    if not names:
        raise UsageError("no provider to compare: no key is set", hint="name them: --provider openai --provider groq")
    rows = [_estimate(file, wanted, name, lane, given) for name in names for lane in provider_named(name).lanes]
    unread = {row["note"] for row in rows if not row["requests"] + row["bad_lines"]}
    if len(unread) == 1 and all(row["note"] in unread for row in rows):
        raise UsageError(unread.pop())  # it is about the file, not about a provider
    rows.sort(key=lambda row: (row["expected_micros"] is None, row["expected_micros"] or 0))
    if given["as_json"]:
        output.data(output.as_json({"file": file, "comparison": rows}))
        return
    columns = ("PROVIDER", "LANE", "REQUESTS", "EXPECTED", "WORST", "TIME", "NOTE")
    output.table(columns, (_comparison_row(row) for row in rows))


def _estimate(file: str, wanted: RequestOptions, provider: str, lane: str, given: dict[str, Any]) -> dict[str, Any]:
    """The same file at one provider, in one lane."""
    from backstay.llm.forecast import Distinct
    from backstay.llm.intake import open_source, survey

    row: dict[str, Any] = {"provider": provider, "lane": lane, "requests": 0, "expected_micros": None}
    row |= {"worst_micros": None, "seconds": None, "bad_lines": 0, "note": ""}
    destination = Destination(
        provider, None, lane, max_output_tokens=given["max_output_tokens"], schema=given["schema"]
    )
    forecast = _forecast(destination, given)
    try:
        with open_source(file, destination.input_options(wanted.input_options())) as source:
            surveyed = survey(source, Distinct(forecast) if given["dedupe"] else forecast)
    except UsageError as error:
        return {**row, "note": error.message}
    total = forecast.total
    row |= {"requests": total.requests, "bad_lines": surveyed.bad_count}
    if surveyed.bad_count:  # its cost would be that of another file
        return {**row, "note": surveyed.describe(surveyed.bad[0])}
    if (reason := _wrong_provider(destination, provider, forecast)) is not None:
        return {**row, "note": reason}
    longest = _pace(given, lane == "batch").longest(total)
    seconds = BATCH_SECONDS if lane == "batch" else None if longest is None else longest[1]
    few = too_few_for_batches(surveyed) if lane == "batch" else ()
    note = few[0].words if few else "" if total.expected_micros is not None else "no price is known; give --price"
    costs = {"expected_micros": total.expected_micros, "worst_micros": total.worst_micros}
    return {**row, **costs, "seconds": seconds, "note": note}


def _wrong_provider(destination: Destination, provider: str, forecast: "Forecast") -> str | None:
    """Why a provider that serves its own models at its own address cannot serve all of these. Gateways may have any."""
    from backstay.llm.providers import provider_named, provider_of_model

    known = provider_named(provider)
    if not known.model_prefixes or destination.url(provider) != known.access.base_url:
        return None
    for _, model in forecast.shares:
        if (owner := provider_of_model(model)) not in (None, provider):
            return f"{model} is a model of {owner}"
    return None


def _comparison_row(row: dict[str, Any]) -> tuple[Any, ...]:
    most = "at most " if row["lane"] == "batch" else ""
    when = UNKNOWN if row["seconds"] is None else f"{most}{show_seconds(row['seconds'])}"
    money = (_money(row["expected_micros"]), _money(row["worst_micros"]))
    return (row["provider"], row["lane"], f"{row['requests']:,}", *money, when, row["note"])


def _pace(given: dict[str, Any], batched: bool) -> "PaceLimits":
    from backstay.core.pace import FurtherLimits
    from backstay.llm.forecast import PaceLimits

    further = FurtherLimits(given["itpm"], given["otpm"], given["rpd"])
    figures = (given["rpm"], given["tpm"], given["concurrency"], given["latency"], further)
    return PaceLimits() if batched else PaceLimits(*figures)


def _plan(file: str, wanted: RequestOptions, destination: Destination, given: dict[str, Any]) -> None:
    from backstay import settings
    from backstay.llm.intake import open_source

    limits, lane = settings.load().bounds(), destination.lane
    destination = destination._replace(max_output_tokens=given["max_output_tokens"])
    forecast = _forecast(destination, given)
    batched = lane in ("batch", CHEAPEST)
    pace = _pace(given, batched)
    with open_source(file, destination.input_options(wanted.input_options())) as source:
        surveyed, known = _survey(source, destination, forecast, given)
        losses = destination.schema_losses(surveyed.providers)
        if given["as_json"]:
            shown = _as_json(source, surveyed, known, forecast, pace, limits)
            output.data(output.as_json({**shown, **({} if destination.schema is None else {"schema_losses": losses})}))
        else:
            when = _window(lane, given["deadline"]) if batched else _time(pace, forecast.total)
            _show(source, surveyed, known, forecast, when, limits)
            for api, lost in losses.items():
                for each in lost:
                    output.note(f"the schema at {api}: {each}")
    for few in too_few_for_batches(surveyed) if batched else ():
        output.note(f"{few.words}: {'they are called' if lane == CHEAPEST else 'use --lane call'}")
    _tell_too_long(pace, forecast.total, limits)
    tell_bad_lines(surveyed, wanted.skip_bad_lines)


def _survey(
    source: "RequestSource", destination: Destination, forecast: "Forecast", given: dict[str, Any]
) -> "tuple[FileSurvey, int]":
    """What is in the file, and how many of its requests earlier runs have answered; the forecast gets the others."""
    from backstay.llm.forecast import Distinct
    from backstay.llm.intake import survey

    with unknown_requests(destination, forecast, given["reuse"], given["db"]) as unknown:
        tally = unknown or forecast
        surveyed = survey(source, Distinct(tally) if given["dedupe"] else tally)
        if unknown is None:
            return surveyed, 0
        unknown.flush()
        return surveyed, unknown.known


def _forecast(destination: Destination, given: dict[str, Any]) -> "Forecast":
    return destination.forecast(given["price"], reasks_of(given["schema"], given["reasks"]), given["output_tokens"])


def _window(lane: str, deadline: float | None) -> str:
    if lane == "batch":
        return "at most 24 h, the provider's batch window"
    return "up to the deadline" if deadline is None else f"at most {show_seconds(deadline)}, the deadline"


def _as_json(
    source: "RequestSource",
    surveyed: "FileSurvey",
    known: int,
    forecast: "Forecast",
    pace: "PaceLimits",
    limits: "Limits",
) -> dict[str, Any]:
    shares = [{"endpoint": url, "model": model, **asdict(share)} for (url, model), share in forecast.shares.items()]
    total = asdict(forecast.total)
    del total["price"]
    longest = pace.longest(forecast.total)
    return {
        "file": source.name,
        "format": source.format,
        "bytes": surveyed.bytes,
        "digest": surveyed.digest,
        **total,
        "known": known,
        "copies": surveyed.requests - forecast.total.requests - known,
        "by_model": shares,
        "seconds": None if longest is None else longest[1],
        "seconds_by_limit": pace.seconds(forecast.total),
        "llm_item_timeout_seconds": limits.llm_item_timeout_seconds,
        "llm_job_timeout_seconds": limits.llm_job_timeout_seconds,
        "bad_lines": surveyed.bad_count,
        "bad": [{"line": bad.line, "reason": bad.reason} for bad in surveyed.bad],
    }


def _tell_too_long(pace: "PaceLimits", total: "ForecastShare", limits: "Limits") -> None:
    """Warns of a run that is too long for its time limit before anyone pays for it."""
    longest = pace.longest(total)
    if longest is not None and longest[1] > limits.llm_job_timeout_seconds:
        most = show_seconds(limits.llm_job_timeout_seconds)
        output.note(f"the run fails after {most}; to allow more time, set BACKSTAY_LLM_JOB_TIMEOUT_SECONDS")


def _show(
    source: "RequestSource", surveyed: "FileSurvey", known: int, forecast: "Forecast", when: str, limits: "Limits"
) -> None:
    total = forecast.total
    copies = surveyed.requests - total.requests - known
    output.record(
        (
            ("file", f"{source.name}, {source.format} format"),
            ("requests", f"{total.requests + known:,}{_copies(copies)}"),
            ("known", show_known(known, total.requests + known) if known else None),
            ("bad lines", f"{surveyed.bad_count:,}"),
            ("tokens in", f"{total.input_tokens:,} expected, {_tokens(total.input_tokens_max)} at most"),
            ("tokens out", f"{total.output_tokens:,} expected, {_tokens(total.output_tokens_max)} at most"),
            ("cost", _cost(total)),
            ("time", when),
            ("limits", _limits(limits)),
        )
    )
    if not total.requests:
        return
    output.data("")
    columns = ("MODEL", "ENDPOINT", "REQUESTS", "IN", "OUT", "LOW", "EXPECTED", "WORST", "PRICE PER MILLION")
    output.table(columns, (_row(*kind, share) for kind, share in forecast.shares.items()))


def _limits(limits: "Limits") -> str:
    item, job = show_seconds(limits.llm_item_timeout_seconds), show_seconds(limits.llm_job_timeout_seconds)
    return f"a request that keeps failing fails after {item}, the run after {job}"


def _copies(number: int) -> str:
    return f", and {number:,} {'copy' if number == 1 else 'copies'} of them" if number else ""


def _row(url: str, model: str, share: "ForecastShare") -> tuple[Any, ...]:
    money = (share.low_micros, share.expected_micros, share.worst_micros)
    counts = (f"{number:,}" for number in (share.requests, share.input_tokens, share.output_tokens))
    return (model, url, *counts, *map(_money, money), share.price)


def _cost(total: "ForecastShare") -> str:
    if total.expected_micros is None:
        return UNKNOWN
    worst = UNBOUNDED if total.worst_micros is None else _money(total.worst_micros)
    return f"{_money(total.low_micros)} low, {_money(total.expected_micros)} expected, {worst} worst"


def _money(micros: int | None) -> str:
    return UNKNOWN if micros is None else show_money(micros)


def _tokens(tokens: int | None) -> str:
    return UNBOUNDED if tokens is None else f"{tokens:,}"


def _time(pace: "PaceLimits", total: "ForecastShare") -> str:
    longest = pace.longest(total)
    if longest is None:
        return f"{UNKNOWN}; give --rpm, --tpm or --latency"
    limit, seconds = longest
    return f"{show_seconds(seconds)}, by {limit}"
