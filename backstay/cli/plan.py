"""`backstay plan`: what a file of requests will take, before anything is sent."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from backstay.cli import output
from backstay.cli.command import Command, Duration, json_option
from backstay.cli.request_options import RequestOptions, price_option, request_options, tell_bad_lines
from backstay.cli.run_options import (
    CHEAPEST,
    LANES,
    api_option,
    base_url_option,
    dedupe_option,
    max_output_tokens_option,
    only_of,
    service_url,
)
from backstay.core.display import show_money, show_seconds

if TYPE_CHECKING:
    from backstay.core.limits import Limits
    from backstay.llm.forecast import Forecast, ForecastShare, PaceLimits
    from backstay.llm.intake import FileSurvey, RequestSource
    from backstay.llm.prices import PricePerMillion

UNKNOWN = "unknown"
UNBOUNDED = "unbounded"


@click.command(
    "plan",
    cls=Command,
    examples=(
        "backstay plan requests.jsonl",
        "backstay plan requests.jsonl --lane batch --price 0.15/0.60",
        "backstay plan rows.csv --template 'Translate: {text}' --model gpt-4o-mini --rpm 500 --latency 2s",
    ),
)
@click.argument("file", metavar="FILE", type=click.Path(allow_dash=True))
@request_options
@api_option
@base_url_option
@click.option("--lane", type=LANES, default="call", show_default=True, help="How the requests will be sent.")
@price_option
@max_output_tokens_option
@click.option("--output-tokens", type=click.IntRange(1), help="Tokens of a typical reply. Default: 300.")
@click.option("--rpm", type=click.IntRange(1), help="Requests per minute.")
@click.option("--tpm", type=click.IntRange(1), help="Tokens per minute, input and output.")
@click.option("--concurrency", type=click.IntRange(1), default=100, show_default=True, help="Concurrent requests.")
@click.option("--latency", type=Duration(), help="How long a reply takes: 0.8, 2s.")
@click.option("--deadline", type=Duration(), help="When the lane `cheapest` must be done, for example 24h.")
@dedupe_option
@json_option
def plan(file: str, wanted: RequestOptions, api: str, base_url: str | None, lane: str, **given: Any) -> None:
    """Reads FILE (`-`: stdin) as a run would, and estimates it: requests, tokens, cost, time.

    Nothing is sent, and no database is used. Lines that cannot be sent are listed, with exit code 2, unless
    --skip-bad-lines is given. Tokens are estimates: low assumes replies of one token; no run can exceed worst.
    """
    from backstay import settings
    from backstay.llm.forecast import Distinct, PaceLimits
    from backstay.llm.intake import open_source, survey

    limits = settings.load().bounds()
    url = service_url(base_url, api)
    forecast = _forecast(api, url, lane, **given)
    batched = lane in ("batch", CHEAPEST)
    pace = PaceLimits() if batched else PaceLimits(given["rpm"], given["tpm"], given["concurrency"], given["latency"])
    with open_source(file, wanted.reading(url, only_of(api, lane), api)) as source:
        surveyed = survey(source, Distinct(forecast) if given["dedupe"] else forecast)
        if given["as_json"]:
            output.data(output.as_json(_as_json(source, surveyed, forecast, pace, limits)))
        else:
            when = _window(lane, given["deadline"]) if batched else _time(pace, forecast.total)
            _show(source, surveyed, forecast, when, limits)
    _tell_too_long(pace, forecast.total, limits)
    tell_bad_lines(surveyed, wanted.skip_bad_lines)


def _forecast(
    api: str,
    url: str,
    lane: str,
    price: "PricePerMillion | None",
    output_tokens: int | None,
    max_output_tokens: int | None,
    **_: Any,
) -> "Forecast":
    """The cheapest lane expects the price of batches, and at worst everything is called in the end."""
    from backstay.llm.endpoint import Lane
    from backstay.llm.forecast import Forecast
    from backstay.llm.prices import PriceList
    from backstay.llm.provider import OUTPUT_TOKENS_EXPECTED

    expected, dearest = (Lane.BATCH, Lane.CALL) if lane == CHEAPEST else (Lane(lane), Lane(lane))
    reply_tokens = output_tokens or min(OUTPUT_TOKENS_EXPECTED, max_output_tokens or OUTPUT_TOKENS_EXPECTED)
    return Forecast(
        PriceList(url, expected, price, max_output_tokens),
        reply_tokens,
        dearest=PriceList(url, dearest, price, max_output_tokens),
        output_tokens_default=max_output_tokens,
        api=api,
    )


def _window(lane: str, deadline: float | None) -> str:
    if lane == "batch":
        return "at most 24 h, the provider's batch window"
    return "up to the deadline" if deadline is None else f"at most {show_seconds(deadline)}, the deadline"


def _as_json(
    source: "RequestSource", surveyed: "FileSurvey", forecast: "Forecast", pace: "PaceLimits", limits: "Limits"
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
        "copies": surveyed.requests - forecast.total.requests,
        "by_model": shares,
        "seconds": None if longest is None else longest[1],
        "seconds_by_limit": pace.seconds(forecast.total),
        "llm_item_timeout_seconds": limits.llm_item_timeout_seconds,
        "llm_job_timeout_seconds": limits.llm_job_timeout_seconds,
        "bad_lines": surveyed.bad_count,
        "bad": [bad._asdict() for bad in surveyed.bad],
    }


def _tell_too_long(pace: "PaceLimits", total: "ForecastShare", limits: "Limits") -> None:
    """Warns of a run that is too long for its time limit before anyone pays for it."""
    longest = pace.longest(total)
    if longest is not None and longest[1] > limits.llm_job_timeout_seconds:
        most = show_seconds(limits.llm_job_timeout_seconds)
        output.note(f"the run fails after {most}; to allow more time, set BACKSTAY_LLM_JOB_TIMEOUT_SECONDS")


def _show(source: "RequestSource", surveyed: "FileSurvey", forecast: "Forecast", when: str, limits: "Limits") -> None:
    total = forecast.total
    output.record(
        (
            ("file", f"{source.name}, {source.format} format"),
            ("requests", f"{total.requests:,}{_copies(surveyed.requests - total.requests)}"),
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
