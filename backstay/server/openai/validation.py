"""Checks whether a batch can begin, and reports all errors of its file together."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from backstay.core.errors import UsageError
from backstay.llm.lines import LineRefused
from backstay.run.submission import Order, Scales
from backstay.server.openai.models import upstream_models
from backstay.server.openai.shapes import content
from backstay.server.openai.survey import FAULTS_MAX, Fault, Survey, requests_of
from backstay.server.service import Service, ServiceOptions
from backstay.store.batches import Batch
from backstay.store.files import StoredFile

STRICT_LINES_MAX: Final = 50_000
UNBOUNDED_WORDS: Final = (
    "The highest possible cost of this request is not known, so the budget of the batch cannot be enforced. "
    "The request must name a model with a known price and limit its reply."
)


class Unbounded(Exception):
    """Nothing bounds what the request on a line can cost, but there is a budget."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line} has no cost limit")
        self.fault = Fault("unbounded_cost", line, UNBOUNDED_WORDS, "body")


async def check_file(service: Service, batch: Batch) -> tuple[list[Fault], dict[str, Any]]:
    """All that is wrong with a batch's file, and what is in it."""
    file = await service.store.files.find(batch.input_file_id, batch.owner)
    if file is None:
        return missing_file(batch.input_file_id), {}
    if file.purpose != "batch":
        return wrong_purpose(file), {}
    survey = await survey_of_file(service, file)
    faults = await faults_of(service, batch, survey)
    if not faults and service.options.budget_micros is not None:
        faults = await _unbounded(service, batch)
    return faults, survey


def scales_of(options: ServiceOptions) -> Scales:
    """What weighs the requests of batches."""
    assert options.upstream is not None
    bounds = (options.budget_micros, options.output_tokens_default)
    return Scales.of(Order(options.upstream, "-", budget_micros=bounds[0], output_tokens_default=bounds[1]))


async def _unbounded(service: Service, batch: Batch) -> list[Fault]:
    """The requests that could cost anything; with a budget there may be none."""
    scales, found, count = scales_of(service.options), list[Fault](), 0
    async for line, parsed in requests_of(service, batch):
        try:
            scales.weigh(parsed.request, parsed.fields)
        except UsageError:
            count += 1
            if count <= FAULTS_MAX:
                found.append(Unbounded(line).fault)
    return _faults_to_show(found, count)


async def survey_of_file(service: Service, file: StoredFile) -> dict[str, Any]:
    """What is in the file: known from its upload, unless it is the requests of a run."""
    if file.survey is not None:
        known: dict[str, Any] = json.loads(file.survey)
        return known
    survey = Survey()
    with suppress(LineRefused):  # a line without end: it is among the faults
        async for piece in content(service, file):
            survey.feed(piece)
        survey.end()
    return survey.told("")


async def faults_of(service: Service, batch: Batch, survey: dict[str, Any]) -> list[Fault]:
    options = service.options
    found = [Fault(*fault) for fault in survey["faults"]]
    found.extend(_wrong_urls(survey["urls"], batch.endpoint))
    found.extend(_too_many(survey["requests"], options))
    if options.strict_openai:
        found.extend(_other_models(survey["models"]))
        found.extend(_unknown_models(survey["models"], await upstream_models(service)))
    count = survey["fault_count"] - len(survey["faults"]) + len(found)
    count += sum(
        number - len(lines) for url, (number, lines) in survey["urls"].items() if not _fits(url, batch.endpoint)
    )
    return _faults_to_show(found, count)


def missing_file(file_id: str) -> list[Fault]:
    return [Fault("invalid_request", None, f"Cannot find file {file_id}.", "file_id")]


def wrong_purpose(file: StoredFile) -> list[Fault]:
    message = f"The purpose of file {file.id} is {file.purpose}; it must be batch."
    return [Fault("invalid_request", None, message, "file_id")]


def errors_as_json(faults: Iterable[Fault]) -> str:
    """As a batch's errors are kept."""
    return json.dumps([fault._asdict() for fault in faults])


def _fits(url: str, endpoint: str) -> bool:
    """The same path, with the version or without it, as Azure's clients write it."""
    return url.removeprefix("/v1") == endpoint.removeprefix("/v1")


def _wrong_urls(urls: dict[str, Any], endpoint: str) -> Iterator[Fault]:
    for url, (_, lines) in urls.items():
        if not _fits(url, endpoint):
            message = f"The URL provided for this request ({url}) does not match the batch endpoint {endpoint}."
            yield from (Fault("invalid_url", line, message, "url") for line in lines)


def _too_many(requests: int, options: ServiceOptions) -> Iterator[Fault]:
    most = STRICT_LINES_MAX if options.strict_openai else options.lines_max
    if requests > most:
        yield Fault("too_many_tasks", None, f"There are {requests:,} requests; a batch takes at most {most:,}.", None)


def _other_models(models: dict[str, int]) -> Iterator[Fault]:
    named = iter(models.items())
    first = next(named, ("", 0))[0]
    for model, line in named:
        message = f"The model {model!r} is another than {first!r}. All requests of a batch must name one model."
        yield Fault("mismatched_model", line, message, "body.model")


def _unknown_models(models: dict[str, int], listed: list[dict[str, Any]] | None) -> Iterator[Fault]:
    known = None if listed is None else {model["id"] for model in listed}
    for model, line in models.items():
        if known is not None and model not in known:
            yield Fault("model_not_found", line, f"The model {model!r} does not exist.", "body.model")


def _faults_to_show(faults: list[Fault], count: int) -> list[Fault]:
    faults.sort(key=lambda fault: fault.line or 0)
    if count <= FAULTS_MAX:
        return faults
    more = f"{count - FAULTS_MAX:,} more errors are not listed here."
    return [*faults[:FAULTS_MAX], Fault("too_many_errors", None, more, None)]
