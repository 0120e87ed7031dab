"""A provider of quite another form than OpenAI's, as it would be written in a folder of its own, and a server for it.

Its batches have no name and no metadata: a request is known there by its reference alone, results come in any order,
and a batch shows its requests only when it has ended.
"""

import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult

from aiohttp import web
from yarl import URL

from backstay.core.errors import OutcomeUnknown, Transient
from backstay.core.failures import ErrorCode, Failure, FailureKind, failure_of_status
from backstay.core.models import Failed, Flaw, Succeeded, Usage
from backstay.llm.batch_results import BatchResultFile, BatchResults, LineResult
from backstay.llm.bodies import id_in, object_in
from backstay.llm.endpoint import Lane
from backstay.llm.lines import LinePart, LineRefused, LlmRequest, open_temporary
from backstay.llm.provider import (
    OUTPUT_TOKENS_EXPECTED,
    Certainty,
    Channel,
    LlmProvider,
    PriceOf,
    ProviderAccess,
    ProviderReply,
    TokenEstimate,
)
from backstay.llm.rate_limits import LimitHeaders, LimitHints, read_limit_headers
from backstay.llm.shards import Shard, ShardBounds

ASK: Final = "/ask"
OVERLOADED: Final = 529
HEADERS: Final = (LimitHeaders("two-requests-left", "two-requests-reset"),)


class TwoRequests:
    def check_base(self, base: SplitResult) -> None:
        """Any will do."""

    def address(self, base: SplitResult, path: str) -> URL:
        return URL(f"{base.scheme}://{base.netloc}{path}")

    def auth_headers(self, base: SplitResult, key: str | None) -> dict[str, str]:
        return {"x-api-key": key or "", "two-version": "2"}

    def only_path(self, lane: Lane, reconcilable: bool) -> str | None:
        return ASK

    def check_body(self, url: str, fields: Mapping[str, Any], may_be_background: bool) -> str | None:
        return str(fields["brain"])

    def is_body(self, fields: Mapping[str, Any]) -> bool:
        return "brain" in fields

    def sends_metadata(self, fields: Mapping[str, Any]) -> bool:
        return True

    def url_of_body(self, fields: Mapping[str, Any], model: str | None) -> str:
        return ASK

    def url_of_prompt(self, model: str | None) -> str:
        return ASK

    def prompt_member(self, url: str, prompt: str, is_text: bool) -> str:
        return f'"question":{prompt}'

    def model_members(self, fields: Mapping[str, Any], model: str | None) -> list[str]:
        return [f'"brain":{json.dumps(model)}']

    def with_model(self, url: str, body: str, model: str) -> tuple[str, str]:
        return url, json.dumps({**json.loads(body), "brain": model})

    def estimate(
        self, url: str, body: str, fields: Mapping[str, Any], output_tokens_expected: int = OUTPUT_TOKENS_EXPECTED
    ) -> TokenEstimate:
        return TokenEstimate(len(body), output_tokens_expected, 10, len(body), model=fields.get("brain"))

    def trace_attributes(self, base_url: str, url: str, fields: Mapping[str, Any]) -> dict[str, str | int]:
        return {"gen_ai.request.model": str(fields.get("brain"))}

    def question(self, fields: Mapping[str, Any]) -> str | None:
        return str(fields["question"])


class TwoReplies:
    def limit_hints(self, reply: ProviderReply, now_ms: int) -> LimitHints:
        return read_limit_headers(reply.headers, now_ms, HEADERS)

    def read_reply(self, reply: ProviderReply, hints: LimitHints, price_of: PriceOf) -> Succeeded | Failed:
        if reply.status == OVERLOADED:
            return Failed(Failure(ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE, "overloaded", 0, OVERLOADED))
        if reply.status != 200:
            return Failed(failure_of_status(reply.status, reply.text))
        return _outcome(json.loads(reply.text), price_of)


def _outcome(said: dict[str, Any], price_of: PriceOf) -> Succeeded:
    price = price_of(said["brain"], None)
    cost = None if price is None else price.cost_micros(said["in"], said["out"])
    flaw = Flaw.TRUNCATED if said["end"] == "too long" else None
    return Succeeded(json.dumps({"status_code": 200, "body": said}), Usage(said["in"], said["out"], cost), 200, flaw)


@dataclass(frozen=True)
class TwoView:
    id: str
    ended: bool
    total: int
    running: bool = True
    percent: int | None = None
    model: str | None = None


class TwoResultReader:
    too_many_tokens = False

    def __init__(self, price_of: PriceOf) -> None:
        self._price_of = price_of

    def read_line(self, text: str) -> LineResult | None:
        said = json.loads(text)
        if said["end"] == "cancelled":
            failure = Failure(ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE, "it was not done")
            return LineResult(Failed(failure, task_ended=True), cancelled=True)
        return LineResult(_outcome(said["answer"], self._price_of))

    def read_missing(self, ref: str, wait_ms: int) -> LineResult:
        return LineResult(Failed(Failure(ErrorCode.UNKNOWN, FailureKind.UNKNOWN, "no word"), task_ended=True))


class StagedHere:
    def __init__(self, shard: Shard, channel: Channel) -> None:
        self._body = json.dumps([{"ref": one.ref, "ask": json.loads(one.body)} for one in shard.entries.values()])
        self._channel = channel

    async def wait_ready(self, create_seconds: float) -> Failed | None:
        return None

    async def create(self, seconds: float) -> str | Failed:
        reply = await self._channel.wire.post("/bulk", self._body, seconds)
        if reply.status >= 500:
            raise OutcomeUnknown("it may have been made")
        if reply.status != 200:
            return self._channel.refusal(reply)
        made = id_in(object_in(reply))
        assert made is not None
        return made


class TwoBatches:
    bounds = ShardBounds(requests_max=100)
    certainty = Certainty.IF_FOUND

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def group_of(self, request: LlmRequest, fields: Mapping[str, Any]) -> tuple[str | None, str]:
        return None, request.url

    async def stage(self, shard: Shard, seconds: float) -> StagedHere:
        return StagedHere(shard, self._channel)

    async def show(self, batch_id: str) -> TwoView:
        said = json.loads((await self._channel.wire.get(f"/bulk/{batch_id}")).text)
        return TwoView(batch_id, said["ended"], said["count"])

    async def find(self, ref: str, since_ms: int) -> str | None:
        """By the first line of the results: all of a batch is of one try, and its references are nobody else's."""
        listed = json.loads((await self._channel.wire.get("/bulk")).text)
        for one in listed:
            if not one["ended"]:
                raise Transient("a batch has not ended, so what is in it is not known")
            into = io.BytesIO()
            await self._channel.wire.download(f"/bulk/{one['id']}/lines", into, 1 << 20)
            if ref in into.getvalue().decode():
                return str(one["id"])
        return None

    async def read_results(self, batch: TwoView) -> BatchResults:
        file = open_temporary()
        await self._channel.wire.download(f"/bulk/{batch.id}/lines", file, 1 << 20)
        files = [BatchResultFile(file, lambda line: str(json.loads(line)["ref"]))]
        return BatchResults(batch, files, TwoResultReader(self._channel.price_of), self._channel.wire.veil)

    async def cancel(self, batch_id: str) -> None:
        await self._channel.wire.delete(f"/bulk/{batch_id}")

    async def close(self) -> None:
        """Nothing is under way here."""


ACCESS: Final = ProviderAccess("https://two.example", "TWO_URL", "TWO_KEY", "/brains")


class TwoChat:
    """OpenAI's chat format for this provider."""

    def is_chat(self, fields: Mapping[str, Any]) -> bool:
        return "messages" in fields

    def request(
        self, fields: Mapping[str, Any], model: str | None, output_tokens_default: int | None
    ) -> tuple[str, dict[str, Any]]:
        if "tools" in fields:
            raise LineRefused("has tools, which two cannot use", LinePart.BODY)
        return ASK, {"brain": fields.get("model") or model, "question": fields["messages"][-1]["content"]}

    def own_member(self, fields: Mapping[str, Any]) -> str | None:
        return "question" if "question" in fields else None

    def is_reply(self, fields: Mapping[str, Any]) -> bool:
        return "said" in fields

    def reply(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": fields["said"]}
        return {"object": "chat.completion", "model": fields["brain"], "choices": [{"index": 0, "message": message}]}


TWO: Final = LlmProvider(
    "two", ACCESS, TwoRequests(), TwoReplies(), batches=TwoBatches, chat=TwoChat(), url_prefixes=(ASK,)
)


@dataclass
class TwoServer:
    """Answers as such a provider would."""

    heads: list[Mapping[str, str]] = field(default_factory=list)
    batches: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    refusals: list[int] = field(default_factory=list)  # statuses of the next calls
    lose_creates: int = 0  # batches that are made, and whose answer is an error of a gateway

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_post(ASK, self._ask)
        app.router.add_post("/bulk", self._create)
        app.router.add_get("/bulk", self._list)
        app.router.add_get("/bulk/{id}", self._show)
        app.router.add_get("/bulk/{id}/lines", self._lines)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _ask(self, request: web.Request) -> web.Response:
        self.heads.append(request.headers)
        if self.refusals:
            return web.json_response({}, status=self.refusals.pop(0))
        return web.json_response(_answer(await request.json()), headers={"two-requests-left": "7"})

    async def _create(self, request: web.Request) -> web.Response:
        made = f"bulk-{len(self.batches)}"
        self.batches[made] = await request.json()
        if self.lose_creates:
            self.lose_creates -= 1
            return web.json_response({}, status=502)
        return web.json_response({"id": made})

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response([{"id": each, "ended": True} for each in self.batches])

    async def _show(self, request: web.Request) -> web.Response:
        return web.json_response({"ended": True, "count": len(self.batches[request.match_info["id"]])})

    async def _lines(self, request: web.Request) -> web.Response:
        lines = [
            {"end": "done", "answer": _answer(one["ask"]), "ref": one["ref"]}
            for one in self.batches[request.match_info["id"]]
        ]
        return web.Response(text="".join(json.dumps(line) + "\n" for line in reversed(lines)))


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    end = "too long" if asked["question"] == "long" else "done"
    return {"brain": asked["brain"], "said": asked["question"], "in": 10, "out": 5, "end": end}
