"""Checks whether a batch can begin, and reports all errors of its file together."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from backstay.core.errors import UsageError
from backstay.llm.endpoint import DEFAULT_API
from backstay.llm.formats import ParsedRequest
from backstay.llm.lines import LineRefused
from backstay.llm.providers import provider_shown
from backstay.run.submission import Scales
from backstay.server.openai.shapes import content
from backstay.server.openai.survey import FAULTS_MAX, Fault, Survey, Unsendable, entries_of, sending_fault
from backstay.server.openai.upstream import ModelLists, input_options_of, is_message_batch, listed_models, scales_of
from backstay.server.service import Service, ServiceOptions
from backstay.store.batches import Batch
from backstay.store.files import StoredFile

STRICT_LINES_MAX: Final = 50_000
UNBOUNDED_WORDS: Final = (
    "The highest possible cost of this request is not known, so the budget of the batch cannot be enforced. "
    "The request must name a model with a known price and limit its reply."
)


async def check_file(service: Service, batch: Batch) -> tuple[list[Fault], dict[str, Any]]:
    """All faults of a batch's file, and its survey."""
    file = await service.store.files.find(batch.input_file_id, batch.owner)
    if file is None:
        return missing_file(batch.input_file_id), {}
    if file.purpose != "batch":
        return wrong_purpose(file), {}
    survey = await survey_of_file(service, file)
    if is_message_batch(batch.id):
        return [], survey  # it was checked completely at the upload
    faults = await faults_of(service, batch, survey)
    if not faults and _must_read_file(service.options):
        faults = await _find_unsendable(service, batch)
    return faults, survey


def unbounded_cost(line: int) -> Unsendable:
    """There is a budget, and the cost of the request on this line has no upper limit."""
    return Unsendable(Fault("unbounded_cost", line, UNBOUNDED_WORDS, "body"))


def _must_read_file(options: ServiceOptions) -> bool:
    """Whether a line that was well-formed at the upload may still be one that cannot be sent."""
    upstream = options.upstream
    return upstream is not None and (
        options.budget_micros is not None or upstream.api != DEFAULT_API or bool(upstream.beside)
    )


async def _find_unsendable(service: Service, batch: Batch) -> list[Fault]:
    """The requests that no provider of this service accepts, and with a budget those whose cost is not limited."""
    scales, found, count = scales_of(service.options), list[Fault](), 0
    async for line, entry in entries_of(service, batch, input_options_of(service.options)):
        try:
            if isinstance(entry, LineRefused):
                raise Unsendable(sending_fault(line, entry))
            weigh_line(scales, line, entry)
        except Unsendable as unsendable:
            count += 1
            if count <= FAULTS_MAX:
                found.append(unsendable.fault)
    return _faults_to_show(found, count)


def weigh_line(scales: dict[str, Scales], line: int, parsed: ParsedRequest) -> tuple[int | None, int, int]:
    try:
        return scales[parsed.api].weigh(parsed.request, parsed.fields)
    except UsageError:
        raise unbounded_cost(line) from None


async def survey_of_file(service: Service, file: StoredFile) -> dict[str, Any]:
    """The survey of the file: made at its upload, or now if it holds the requests of a run."""
    if file.survey is not None:
        known: dict[str, Any] = json.loads(file.survey)
        return known
    survey = Survey()
    with suppress(LineRefused):  # a line that is too long: it is among the faults
        async for piece in content(service, file):
            survey.feed(piece)
        survey.end()
    return survey.dump("")


async def faults_of(service: Service, batch: Batch, survey: dict[str, Any]) -> list[Fault]:
    options = service.options
    found = [Fault(*fault) for fault in survey["faults"]]
    found.extend(_wrong_urls(survey["urls"], batch.endpoint))
    found.extend(_too_many(survey["requests"], options))
    if options.strict_openai:
        found.extend(_mixed_models(survey["models"]))
        found.extend(_unknown_models(survey["models"], await listed_models(service)))
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
    """The errors of a batch as they are stored."""
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


def _mixed_models(models: dict[str, int]) -> Iterator[Fault]:
    named = iter(models.items())
    first = next(named, ("", 0))[0]
    for model, line in named:
        message = f"The model {model!r} is another than {first!r}. All requests of a batch must name one model."
        yield Fault("mismatched_model", line, message, "body.model")


def _unknown_models(models: dict[str, int], listed: ModelLists) -> Iterator[Fault]:
    """A model whose provider lists nothing may exist, and one without a provider is found later."""
    known = {api: None if some is None else {model["id"] for model in some} for api, some in listed.items()}
    for model, line in models.items():
        api = next(iter(known)) if len(known) == 1 else provider_shown(model, None)
        there = known.get(api or "")
        if there is not None and model not in there and model.removeprefix(f"{api}:") not in there:
            yield Fault("model_not_found", line, f"The model {model!r} does not exist.", "body.model")


def _faults_to_show(faults: list[Fault], count: int) -> list[Fault]:
    faults.sort(key=lambda fault: fault.line or 0)
    if count <= FAULTS_MAX:
        return faults
    more = f"{count - FAULTS_MAX:,} more errors are not listed here."
    return [*faults[:FAULTS_MAX], Fault("too_many_errors", None, more, None)]
