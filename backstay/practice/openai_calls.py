"""OpenAI's paid calls: chat, completions, embeddings, moderations and responses; stored completions and models."""

import base64
import hashlib
import json
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aiohttp import web

from backstay.practice.faults import model_named_after
from backstay.practice.openai_responses import RESPONSES, OpenAiResponses, generate_response, read_response_prompt
from backstay.practice.openai_shapes import (
    OPENAI,
    Body,
    OpenAiError,
    Paging,
    check_metadata,
    count_schema_tokens,
    count_tool_tokens,
    list_page,
    not_found,
    read_call,
    read_input,
    read_messages,
    read_model,
    read_object,
    read_tokens_max,
    wrong_type,
)
from backstay.practice.pipeline import ApiFormat, PaidCall, Pipeline, ProviderState
from backstay.practice.replies import (
    NO_STREAMS,
    GeneratedReply,
    PracticeReply,
    ReplyStamp,
    json_reply,
    json_text,
    write_answer,
)
from backstay.practice.structured import form_answer, shows_answer

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"
MODERATIONS = "/v1/moderations"

CHOICES_MAX = 128
COMPLETION_TOKENS_DEFAULT = 16  # what the endpoint allows when a request does not say
DIMENSIONS_DEFAULT, DIMENSIONS_MAX = 8, 4096
MODELS = ("practice", "practice-mini", "practice-embedding", "practice-moderation")
MODEL_CREATED_AT = 1_700_000_000
UNKNOWN_MODEL = model_named_after(404)
MODERATION_CATEGORIES = (
    "harassment",
    "harassment/threatening",
    "hate",
    "hate/threatening",
    "illicit",
    "illicit/violent",
    "self-harm",
    "self-harm/instructions",
    "self-harm/intent",
    "sexual",
    "sexual/minors",
    "violence",
    "violence/graphic",
)

_CHOICE = (
    '{"index":%d,"message":{"role":"assistant","content":%s,"refusal":null,"annotations":[]},'
    '"logprobs":null,"finish_reason":"%s"}'
)
_TOOL_CHOICE = (
    '{"index":%d,"message":{"role":"assistant","content":null,"refusal":null,"annotations":[],"tool_calls":%s},'
    '"logprobs":null,"finish_reason":"tool_calls"}'
)
_METADATA_FILTER = re.compile(r"metadata\[(.+)\]")


def generate_chat(body: Body, stamp: ReplyStamp) -> GeneratedReply:
    """Thousands of requests a second come here, so the JSON is written by hand."""
    model = read_model(body)
    _refuse_stream(body)
    prompt = read_messages(body.get("messages"), "messages")
    tokens_max = read_tokens_max(body, "max_completion_tokens", "max_tokens")
    form = form_answer(_schema_in(body), prompt.text, stamp.fault, shows_answer(body["messages"]))
    answer = write_answer(prompt, tokens_max, stamp.answer_tokens, form)
    copies = _read_copies(body)
    finish = "stop" if answer.whole else "length"
    calls = _tool_calls(body, prompt.text, stamp)
    choices = ",".join(
        _CHOICE % (index, json_text(answer.text), finish) if calls is None else _TOOL_CHOICE % (index, calls)
        for index in range(copies)
    )
    asked, made = prompt.tokens + count_tool_tokens(body) + count_schema_tokens(body), answer.tokens * copies
    text = (
        f'{{"id":"chatcmpl-{stamp.mark}","object":"chat.completion","created":{stamp.created},'
        f'"model":{json_text(model)},'
        f'"choices":[{choices}],"usage":{{"prompt_tokens":{asked},"completion_tokens":{made},'
        f'"total_tokens":{asked + made},"prompt_tokens_details":{{"cached_tokens":0,"audio_tokens":0}},'
        '"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,'
        '"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}'
    )
    return GeneratedReply(text, asked, made, asked + (tokens_max or answer.tokens) * copies)


def _tool_calls(body: Body, prompt: str, stamp: ReplyStamp) -> str | None:
    """A call of the tool that the request names; if any must be called, of the first, and of the last once a tool has
    answered, so that a program that offers the tool which ends it comes to its end."""
    choice, tools = body.get("tool_choice"), body.get("tools")
    if not isinstance(tools, list) or not tools or choice in (None, "auto", "none"):
        return None
    functions = [tool.get("function") or {} for tool in tools if isinstance(tool, dict)]
    answered = any(message.get("role") == "tool" for message in body["messages"])
    named = (choice.get("function") or {}).get("name") if isinstance(choice, dict) else None
    chosen = next((each for each in functions if each.get("name") == named), functions[-1 if answered else 0])
    given = form_answer(chosen.get("parameters") or {}, prompt, None, False)
    call = {
        "id": f"call_{stamp.mark}",
        "type": "function",
        "function": {"name": chosen.get("name"), "arguments": given},
    }
    return json.dumps([call])


def _schema_in(body: Body) -> Any:
    wanted = body.get("response_format")
    given = wanted.get("json_schema") if isinstance(wanted, dict) else None
    return given.get("schema") if isinstance(given, dict) else None


def _refuse_stream(body: Body) -> None:
    if body.get("stream"):
        raise OpenAiError(400, NO_STREAMS, "unsupported_parameter", "stream")


def _read_copies(body: Body) -> int:
    copies = body.get("n")
    if copies is None:
        return 1
    if not isinstance(copies, int) or isinstance(copies, bool):
        raise wrong_type("n", "an integer")
    if not 1 <= copies <= CHOICES_MAX:
        raise OpenAiError(400, f"Invalid 'n': it must be from 1 to {CHOICES_MAX}.", "invalid_value", "n")
    return copies


def generate_completion(body: Body, stamp: ReplyStamp) -> GeneratedReply:
    """Completions of plain prompts, the older endpoint."""
    model = read_model(body)
    _refuse_stream(body)
    prompts = read_input(body.get("prompt"), "prompt")
    tokens_max = read_tokens_max(body, "max_tokens") or COMPLETION_TOKENS_DEFAULT
    copies = _read_copies(body)
    answers = [write_answer(prompt, tokens_max, stamp.answer_tokens) for prompt in prompts for _ in range(copies)]
    asked, made = sum(prompt.tokens for prompt in prompts), sum(each.tokens for each in answers)
    choices = [
        {"index": index, "text": each.text, "logprobs": None, "finish_reason": "stop" if each.whole else "length"}
        for index, each in enumerate(answers)
    ]
    value = {
        "id": f"cmpl-{stamp.mark}",
        "object": "text_completion",
        "created": stamp.created,
        "model": model,
        "choices": choices,
        "usage": {"prompt_tokens": asked, "completion_tokens": made, "total_tokens": asked + made},
    }
    return GeneratedReply(json.dumps(value), asked, made, asked + tokens_max * len(answers))


def generate_embeddings(body: Body, stamp: ReplyStamp) -> GeneratedReply:
    model = read_model(body)
    prompts = read_input(body.get("input"), "input")
    size = body.get("dimensions", DIMENSIONS_DEFAULT)
    if not isinstance(size, int) or not 1 <= size <= DIMENSIONS_MAX:
        raise OpenAiError(400, f"Invalid 'dimensions': 1 to {DIMENSIONS_MAX}.", "invalid_value", "dimensions")
    packed = body.get("encoding_format") == "base64"
    data = []
    for index, prompt in enumerate(prompts):
        vector = embedding_of(prompt.text, size)
        shown = base64.b64encode(struct.pack(f"<{size}f", *vector)).decode() if packed else vector
        data.append({"object": "embedding", "index": index, "embedding": shown})
    asked = sum(prompt.tokens for prompt in prompts)
    value = {
        "object": "list",
        "data": data,
        "model": model,
        "usage": {"prompt_tokens": asked, "total_tokens": asked},
    }
    return GeneratedReply(json.dumps(value), asked, 0, asked)


def embedding_of(text: str, size: int) -> list[float]:
    """Numbers from -1 to 1 that depend on the text only."""
    raw = hashlib.shake_128(text.encode("utf-8", "surrogatepass")).digest(size)
    return [round(byte / 127.5 - 1, 6) for byte in raw]


def generate_moderation(body: Body, stamp: ReplyStamp) -> GeneratedReply:
    """Nothing is ever flagged, and nothing is charged, as at OpenAI."""
    prompts = read_input(body.get("input"), "input")
    result = {
        "flagged": False,
        "categories": dict.fromkeys(MODERATION_CATEGORIES, False),
        "category_scores": dict.fromkeys(MODERATION_CATEGORIES, 0.0),
        "category_applied_input_types": {name: ["text"] for name in MODERATION_CATEGORIES},
    }
    model = body.get("model") or "practice-moderation"
    value = {"id": f"modr-{stamp.mark}", "model": model, "results": [result] * len(prompts)}
    asked = sum(prompt.tokens for prompt in prompts)
    return GeneratedReply(json.dumps(value), asked, 0, asked, free=True)


ENDPOINTS: dict[str, Callable[[Body, ReplyStamp], GeneratedReply]] = {
    CHAT: generate_chat,
    RESPONSES: generate_response,
    EMBEDDINGS: generate_embeddings,
    COMPLETIONS: generate_completion,
    MODERATIONS: generate_moderation,
}


def endpoint_of(path: str) -> str:
    """The endpoint behind a path; other providers have the same endpoints at other places."""
    return path if path in ENDPOINTS else next(each for each in ENDPOINTS if path.endswith(each.removeprefix("/v1")))


def generate(url: str, body: Body, stamp: ReplyStamp) -> GeneratedReply:
    if "metadata" in body:
        check_metadata(body["metadata"])
    return ENDPOINTS[url](body, stamp)


def answer_to(url: str, body: Body, answer_tokens: int | None = None) -> Any:
    """The practice provider's answer to a request: a text, or the vector of the first input."""
    if url == CHAT:
        prompt = read_messages(body.get("messages"), "messages")
        form = form_answer(_schema_in(body), prompt.text, None, again=True)
        most = read_tokens_max(body, "max_completion_tokens", "max_tokens")
        return write_answer(prompt, most, answer_tokens, form).text
    if url == RESPONSES:
        prompt = read_response_prompt(body)
        return write_answer(prompt, read_tokens_max(body, "max_output_tokens"), answer_tokens).text
    if url == COMPLETIONS:
        prompt = read_input(body.get("prompt"), "prompt")[0]
        tokens_max = read_tokens_max(body, "max_tokens") or COMPLETION_TOKENS_DEFAULT
        return write_answer(prompt, tokens_max, answer_tokens).text
    if url == EMBEDDINGS:
        first = read_input(body.get("input"), "input")[0]
        return embedding_of(first.text, body.get("dimensions", DIMENSIONS_DEFAULT))
    raise ValueError(f"{url} has no answer to compare with: use {CHAT}, {RESPONSES}, {COMPLETIONS} or {EMBEDDINGS}")


class OpenAiCalls:
    """The paid endpoints. Another API may have a format of its own, and fewer endpoints."""

    format: ApiFormat = OPENAI
    endpoints: tuple[str, ...] = tuple(ENDPOINTS)

    def __init__(self, completions: "PracticeCompletions", responses: OpenAiResponses) -> None:
        self._completions = completions
        self._responses = responses

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        for path in self.endpoints:
            router.add_route("POST", path, pipeline.paid_route(self.format, self))

    def read_call(self, request: web.Request, raw: bytes) -> PaidCall:
        return read_call(endpoint_of(request.path), read_object(raw), request.headers)

    def generate(self, call: PaidCall, stamp: ReplyStamp) -> GeneratedReply:
        return generate(call.url, call.body, stamp)

    def finish(self, call: PaidCall, made: GeneratedReply, charge: Callable[[], None]) -> PracticeReply:
        body = call.body
        if call.url == RESPONSES and body.get("background"):
            return self._responses.begin(made, charge, streams=bool(body.get("stream")))
        charge()
        if body.get("store") is True:
            if call.url == CHAT:
                self._completions.add(made.text, body)
            elif call.url == RESPONSES:
                self._responses.keep(made)
        return PracticeReply(200, made.text.encode())


async def list_models(request: web.Request) -> PracticeReply:
    return json_reply({"object": "list", "data": [_model_object(name) for name in MODELS]})


async def show_model(request: web.Request) -> PracticeReply:
    """Any name is a model, except the one that asks for a 404."""
    name = request.match_info["id"]
    if name == UNKNOWN_MODEL:
        raise OpenAiError(404, f"The model '{name}' does not exist.", "model_not_found", "model")
    return json_reply(_model_object(name))


def _model_object(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": MODEL_CREATED_AT, "owned_by": "practice"}


class StoredCompletion(NamedTuple):
    id: str
    text: str
    model: str
    metadata: dict[str, str]
    visible_at: float

    def dump(self) -> dict[str, Any]:
        return {**json.loads(self.text), "metadata": self.metadata}


class PracticeCompletions:
    """Chat completions that were made with store: true. Clients list them by their metadata."""

    def __init__(self, state: ProviderState) -> None:
        self._state = state
        self._completions: dict[str, StoredCompletion] = {}
        self._by_pair: dict[tuple[str, str], list[str]] = {}

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        for method, path, work in (
            ("GET", CHAT, self.list_),
            ("GET", f"{CHAT}/{{id}}", self.show),
            ("DELETE", f"{CHAT}/{{id}}", self.remove),
        ):
            router.add_route(method, path, pipeline.unpaid_route(OPENAI, work))

    def add(self, text: str, body: Mapping[str, Any]) -> None:
        metadata = body.get("metadata") or {}
        name = json.loads(text)["id"]
        visible_at = self._state.clock.monotonic() + self._state.faults.visible_after
        self._completions[name] = StoredCompletion(name, text, body["model"], metadata, visible_at)
        for pair in metadata.items():
            self._by_pair.setdefault(pair, []).append(name)

    async def list_(self, request: web.Request) -> PracticeReply:
        """The oldest first; `metadata[key]=value` and `model` choose among them."""
        filters = ((_METADATA_FILTER.fullmatch(name), value) for name, value in request.query.items())
        pairs = [(found[1], value) for found, value in filters if found]
        names = self._by_pair.get(pairs[0], ()) if pairs else self._completions
        now, model = self._state.clock.monotonic(), request.query.get("model")
        chosen = [
            each
            for each in map(self._completions.get, names)
            if each is not None
            and each.visible_at <= now
            and (model is None or each.model == model)
            and all(each.metadata.get(key) == value for key, value in pairs)
        ]
        return list_page(chosen, Paging.read(request.query, limit_max=100, order="asc"), StoredCompletion.dump)

    async def show(self, request: web.Request) -> PracticeReply:
        return json_reply(self._find(request).dump())

    async def remove(self, request: web.Request) -> PracticeReply:
        found = self._find(request)
        del self._completions[found.id]
        return json_reply({"id": found.id, "object": "chat.completion.deleted", "deleted": True})

    def _find(self, request: web.Request) -> StoredCompletion:
        name = request.match_info["id"]
        if (found := self._completions.get(name)) is None:
            raise not_found("stored completion", name)
        return found
