"""What we send to providers with APIs like OpenAI's, compared field by field with what their own clients send."""

import asyncio
import re
from collections.abc import Callable
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from typing import Any, NamedTuple

import groq
import openai
import pytest
import together
from mistralai.client import Mistral

from backstay.core.models import Submitted
from backstay.llm.endpoint import Endpoint, Lane
from tests.databases import Site
from tests.llm.lane_rig import HALF, KEY, Arrival, LaneRig, Recorder, lane

pytestmark = pytest.mark.slow

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "héllo ✓"}],
    "max_tokens": 100,
    "temperature": 0.5,
    "stop": ["END"],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
    "tool_choice": "auto",
    "response_format": {"type": "json_object"},
}
_FILE_ID = re.compile(r"file-[0-9a-f]+")


class Ours(NamedTuple):
    """What we sent for one batch, by method and path, in which ids of files are left out."""

    sent: dict[str, Arrival]

    def of(self, start: str) -> Arrival:
        return next(arrival for name, arrival in self.sent.items() if name.startswith(start))


class Upload(NamedTuple):
    name: str
    content: bytes


def name_of(arrival: Arrival) -> str:
    return f"{arrival.method} {_FILE_ID.sub('*', arrival.path)}"


def form_of(arrival: Arrival) -> dict[str, tuple[str | None, bytes]]:
    """The fields of a form: the name of its file, and its content."""
    head = f"Content-Type: {arrival.headers['content-type']}\r\n\r\n".encode()
    parts: Any = BytesParser().parsebytes(head + arrival.body).get_payload()
    return dict(map(_field, parts))


def _field(part: Message) -> tuple[str, tuple[str | None, bytes]]:
    content: Any = part.get_payload(decode=True)
    return str(part.get_param("name", header="content-disposition")), (part.get_filename(), content)


def upload_of(ours: Arrival) -> Upload:
    form = form_of(ours)
    if "file" not in form:  # Together gets the bytes elsewhere
        return Upload(form["file_name"][1].decode(), b"")
    name, content = form["file"]
    return Upload(str(name), content)


def ids_in(ours: Ours, create: str) -> tuple[str, str]:
    """Of the batch and of its results."""
    shown = next(arrival for name, arrival in ours.sent.items() if name.startswith(f"GET {create}/"))
    read = next(a for name, a in ours.sent.items() if name.endswith("/content"))
    return shown.path.rpartition("/")[2], read.path.split("/")[-2]


class Place(NamedTuple):
    """Where a provider's API is, its client, and what the client does: calls, or all about one batch."""

    base: str
    client: Callable[[str], Any]
    call: Callable[[Any], Any]
    batch: Callable[[Any, Ours, Path], Any]
    more_in_form: frozenset[str] = frozenset()  # what only the client sends with a file


def _chat(client: Any) -> Any:
    return client.chat.completions.create(**BODY)


def _openai_batch(prefix: str) -> Callable[[Any, Ours, Path], None]:
    def do(client: Any, ours: Ours, folder: Path) -> None:
        create = ours.of(f"POST {prefix}/batches").value
        batch_id, result_id = ids_in(ours, f"{prefix}/batches")
        given = upload_of(ours.of(f"POST {prefix}/files"))
        file = client.files.create(file=(given.name, given.content), purpose="batch")
        client.batches.create(**{**create, "input_file_id": file.id})
        client.batches.retrieve(batch_id)
        client.files.content(result_id)
        client.files.delete(file.id)
        client.batches.list(**({} if isinstance(client, groq.Groq) else {"limit": 100}))
        with pytest.raises((openai.ConflictError, groq.ConflictError)):  # it has ended
            client.batches.cancel(batch_id)

    return do


def _mistral_batch(client: Any, ours: Ours, folder: Path) -> None:
    create = ours.of("POST /mistral/v1/batch/jobs").value
    batch_id, result_id = ids_in(ours, "/mistral/v1/batch/jobs")
    given = upload_of(ours.of("POST /mistral/v1/files"))
    file = client.files.upload(file={"file_name": given.name, "content": given.content}, purpose="batch")
    client.batch.jobs.create(**{**create, "input_files": [file.id]})
    client.batch.jobs.get(job_id=batch_id)
    client.files.download(file_id=result_id)
    client.files.delete(file_id=file.id)
    client.batch.jobs.list(page=0, page_size=100, order_by="-created")
    client.batch.jobs.cancel(job_id=batch_id)


def _together_batch(client: Any, ours: Ours, folder: Path) -> None:
    create = ours.of("POST /together/v1/batches").value
    batch_id, result_id = ids_in(ours, "/together/v1/batches")
    path = folder / upload_of(ours.of("POST /together/v1/files")).name
    path.write_bytes(b'{"custom_id":"a","body":{"model":"m","messages":[{"role":"user","content":"x"}]}}\n')
    file = client.files.upload(file=path, purpose="batch-api")
    client.batches.create(**{**create, "input_file_id": file.id})
    client.batches.retrieve(batch_id)
    client.files.content(result_id)
    client.batches.list()
    client.batches.cancel(batch_id)


PLACES = {
    "openai": Place("/v1", lambda root: openai.OpenAI(api_key=KEY, base_url=f"{root}/v1"), _chat, _openai_batch("/v1")),
    "azure": Place(
        "?api-version=2024-10-21",
        lambda root: openai.AzureOpenAI(api_key=KEY, azure_endpoint=root, api_version="2024-10-21"),
        _chat,
        _openai_batch("/openai"),
    ),
    "groq": Place("", lambda root: groq.Groq(api_key=KEY, base_url=root), _chat, _openai_batch("/openai/v1")),
    "mistral": Place(
        "/mistral/v1",
        lambda root: Mistral(api_key=KEY, server_url=f"{root}/mistral"),
        lambda client: client.chat.complete(**BODY),
        _mistral_batch,
        frozenset({"visibility"}),
    ),
    "together": Place(
        "/together/v1",
        lambda root: together.Together(api_key=KEY, base_url=f"{root}/together"),
        _chat,
        _together_batch,
    ),
}


async def moved(rig: LaneRig, api: str, kind: Lane) -> str:
    root = rig.base_url.removesuffix("/v1")
    await rig.move_to(Endpoint(f"{root}{PLACES[api].base}", kind, price=HALF, api=api))
    return root


def check_headers(ours: Arrival, theirs: Arrival) -> None:
    for name in ("authorization", "api-key"):
        assert ours.headers.get(name) == theirs.headers.get(name)
    own = {
        "authorization",
        "api-key",
        "accept",
        "accept-encoding",
        "user-agent",
        "host",
        "content-length",
        "connection",
    }
    assert ours.headers.keys() <= own | {"content-type", "x-client-request-id"}  # OpenAI takes an id of the request
    if ours.body:
        kinds = [arrival.headers["content-type"].partition(";")[0] for arrival in (ours, theirs)]
        assert kinds[0] == kinds[1]


@pytest.mark.parametrize("api", PLACES)
async def test_a_call_is_the_request_that_the_client_sends(sqlite_site: Site, api: str) -> None:
    recorder, place = Recorder(), PLACES[api]
    async with lane(sqlite_site, Lane.CALL, recorder) as rig:
        root = await moved(rig, api, Lane.CALL)
        path = "/deployments/m/chat/completions" if api == "azure" else "/v1/chat/completions"
        assert (await rig.done(await rig.request([BODY], path))).succeeded == 1
        [ours] = recorder.take()
        await asyncio.to_thread(place.call, place.client(root))
        [theirs] = recorder.take()
        assert (ours.method, ours.path, ours.query) == (theirs.method, theirs.path, theirs.query)
        assert ours.value == BODY
        extra = {"stream": False} if api == "mistral" else {}  # the client says so itself
        assert theirs.value == {**BODY, **extra}
        check_headers(ours, theirs)


async def our_batch(rig: LaneRig, recorder: Recorder) -> Ours:
    """All that is sent for a batch: made, shown, read, looked for by a new process, and cancelled."""
    job = await rig.request([BODY, {**BODY, "max_tokens": 7}])
    assert (await rig.done(job)).succeeded == 2
    rig.restart()
    task = (await rig.item(job)).provider_task_id
    assert task is not None
    made = recorder.take()
    assert isinstance(await rig.handler.ask(task.rpartition("/")[2], 1), Submitted)
    await rig.handler.cancel(task)  # type: ignore[union-attr]
    sent: dict[str, Arrival] = {}
    for arrival in (*made, *recorder.take()):
        sent.setdefault(name_of(arrival), arrival)
    return Ours(sent)


def check_same(ours: Arrival, theirs: Arrival, place: Place) -> None:
    name = name_of(theirs)
    check_headers(ours, theirs)
    if "multipart" in theirs.headers.get("content-type", ""):
        own, other = form_of(ours), form_of(theirs)
        assert other.keys() - place.more_in_form == own.keys(), name
        for field in own.keys() - {"checksum"}:
            assert own[field] == other[field], (name, field)
    else:
        told = [_FILE_ID.sub("*", each.body.decode()) for each in (ours, theirs)]
        assert (ours.value and {**ours.value, "input_file_id": 0, "input_files": 0}) == (
            theirs.value and {**theirs.value, "input_file_id": 0, "input_files": 0}
        ), (name, told)
    for parameter in ours.query.keys() & theirs.query.keys():
        assert ours.query[parameter] == theirs.query[parameter], (name, parameter)
    if not name.endswith(("/batches", "/batch/jobs")):  # of a list we ask for long pages
        assert ours.query == theirs.query, name


@pytest.mark.parametrize("api", PLACES)
async def test_a_batch_is_made_shown_read_listed_and_cancelled_as_by_the_client(
    sqlite_site: Site, tmp_path: Path, api: str
) -> None:
    recorder, place = Recorder(), PLACES[api]
    async with lane(sqlite_site, Lane.BATCH, recorder) as rig:
        root = await moved(rig, api, Lane.BATCH)
        ours = await our_batch(rig, recorder)
        await asyncio.to_thread(place.batch, place.client(root), ours, tmp_path)
        theirs = recorder.take()
        assert len(theirs) >= 7 - (api == "together")
        for arrival in theirs:
            assert name_of(arrival) in ours.sent, f"we never send {name_of(arrival)}: {sorted(ours.sent)}"
            check_same(ours.sent[name_of(arrival)], arrival, place)
