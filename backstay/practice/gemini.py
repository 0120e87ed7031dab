"""Gemini's answers, the counting of their tokens, and its models: shapes, errors and limits as Google's clients know
them. Vertex AI has the same answers at paths of its own."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from backstay.practice.faults import RequestedFault, requested_fault
from backstay.practice.pipeline import LimitUse, PaidCall, Pipeline, ProviderState, Route
from backstay.practice.replies import (
    NO_STREAMS,
    ErrorReason,
    GeneratedReply,
    PracticeReply,
    Prompt,
    ProviderError,
    ReplyStamp,
    count_tokens,
    json_reply,
    moment,
    write_answer,
)
from backstay.practice.structured import form_answer, shows_answer

KEY_HEADER: Final = "x-goog-api-key"
VERSIONS: Final = ("v1", "v1beta", "v1alpha")
SHARED_VERSION: Final = "v1"  # OpenAI's paths begin so, too, and some that are read or deleted are the same
MODEL: Final = "/models/{model:[^/:]+}"
FILE_HOURS: Final = 48
VERTEX: Final = "/v1/projects/{project}/locations/{location}/publishers/google"
CONTENT_TOKENS: Final = 2  # of a turn, beside its text
THOUGHT_TOKENS: Final = 8  # of a request that sets how much the model may think
CANDIDATES_MAX: Final = 8
MODELS: Final = ("gemini-practice", "gemini-practice-mini")
PARAMETERS: Final = frozenset(
    (
        "model",
        "contents",
        "systeminstruction",
        "generationconfig",
        "tools",
        "toolconfig",
        "safetysettings",
        "cachedcontent",
        "servicetier",
        "labels",
        "store",
    )
)
NAME_OF_STATUS: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_RPC: Final = "type.googleapis.com/google.rpc."
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode

Body = Mapping[str, Any]


def invalid(message: str) -> ProviderError:
    return ProviderError(400, message)


def plain(value: object) -> dict[str, Any]:
    """An object by its names without their spelling: Google takes camelCase and snake_case."""
    if not isinstance(value, dict):
        return {}
    return {str(name).replace("_", "").lower(): inner for name, inner in value.items()}


def error_body(error: ProviderError) -> dict[str, Any]:
    status, message, details = error.status, error.message, list[dict[str, Any]]()
    if error.reason is ErrorReason.KEY:  # a wrong key is a wrong argument here
        status, message = 400, "API key not valid. Please pass a valid API key."
        details.append({"@type": f"{_RPC}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"})
    elif error.reason is ErrorReason.QUOTA:
        message = "Your project has exceeded its monthly spending cap (practice)."
    elif error.reason is ErrorReason.RATE_LIMIT:
        quota = {"quotaId": "GenerateRequestsPerMinutePerProjectPerModel", "quotaValue": "1"}
        details.append({"@type": f"{_RPC}QuotaFailure", "violations": [quota]})
        if (seconds := _wait_seconds(error.headers)) is not None:
            details.append({"@type": f"{_RPC}RetryInfo", "retryDelay": f"{seconds:g}s"})
    name = NAME_OF_STATUS.get(status, "INTERNAL" if status >= 500 or status == 0 else "INVALID_ARGUMENT")
    return {"error": {"code": status or 500, "message": message, "status": name, "details": details}}


def _wait_seconds(headers: Mapping[str, str]) -> float | None:
    if "retry-after-ms" in headers:
        return float(headers["retry-after-ms"]) / 1_000
    given = headers.get("Retry-After", "")
    return float(given) if given.replace(".", "", 1).isdecimal() else None


class GeminiFormat:
    """Google's keys and errors. How long to wait is in the body of an error; there are no headers with limits."""

    def api_key(self, headers: Mapping[str, str]) -> str | None:
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        return headers.get(KEY_HEADER) or (token if scheme.lower() == "bearer" else None)

    def id_headers(self, mark: str) -> Mapping[str, str]:
        return {}

    def error_reply(self, error: ProviderError) -> PracticeReply:
        body = error_body(error)
        return json_reply(body, body["error"]["code"])

    def limit_headers(self, use: LimitUse) -> Mapping[str, str]:
        return {}

    def limit_error(self, use: LimitUse) -> ProviderError:
        message = f"You exceeded your current quota of {use.exceeded} per minute (practice)."
        wait = {"Retry-After": f"{-(-use.wait_seconds // 1):.0f}"}
        return ProviderError(429, message, ErrorReason.RATE_LIMIT, wait)


class _OfGoogle(web.DynamicResource):
    """Some paths are also OpenAI's. Only Google's clients send this header."""

    async def resolve(self, request: web.Request) -> Any:
        return await super().resolve(request) if KEY_HEADER in request.headers else (None, set())


class _PlainOfGoogle(web.PlainResource):
    async def resolve(self, request: web.Request) -> Any:
        return await super().resolve(request) if KEY_HEADER in request.headers else (None, set())


def add_route(router: web.UrlDispatcher, method: str, path: str, route: Route) -> None:
    """At every version of the API: newer clients ask for v1, and those before them for v1beta."""
    for version in VERSIONS:
        full = f"/{version}{path}"
        if version != SHARED_VERSION or method == "POST":
            router.add_route(method, full, route)
            continue
        resource = _OfGoogle(full) if "{" in full else _PlainOfGoogle(full)
        router.register_resource(resource)
        resource.add_route(method, route)


@dataclass(slots=True)
class GeminiFile:
    name: str
    path: Path
    created_ms: int
    display_name: str | None = None
    mime_type: str = "application/jsonl"
    size: int = 0  # as announced
    generated: bool = False

    def dump(self, request: web.Request) -> dict[str, Any]:
        shown = {
            "name": self.name,
            **({} if self.display_name is None else {"displayName": self.display_name}),
            "mimeType": self.mime_type,
            "sizeBytes": str(self.path.stat().st_size),
            "createTime": moment(self.created_ms),
            "updateTime": moment(self.created_ms),
            "expirationTime": moment(self.created_ms + FILE_HOURS * 3_600_000),
            "uri": f"{request.scheme}://{request.host}/v1beta/{self.name}",
            "state": "ACTIVE",
            "source": "GENERATED" if self.generated else "UPLOADED",
        }
        more = {"downloadUri": f"{shown['uri']}:download?alt=media"} if self.generated else {}
        return {**shown, **more}


class UploadFormat(GeminiFormat):
    """The URL of an upload is the right to use it: its requests have no key."""

    def __init__(self, state: ProviderState) -> None:
        self._state = state

    def api_key(self, headers: Any) -> str | None:
        return self._state.faults.key


# Requests and replies


def read_object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise invalid("Invalid JSON payload received.") from None
    if not isinstance(body, dict):
        raise invalid("Invalid JSON payload received. Root element must be a message.")
    return body


def read_call(model: str, body: dict[str, Any]) -> PaidCall:
    """A fault is requested by the model, or by a cached content with a name such as cachedContents/practice-503."""
    url = f"models/{model}:generateContent"
    digest = hashlib.blake2b(f"{url} {_canonical(body)}".encode(), digest_size=8).hexdigest()
    return PaidCall(url, {"model": model, **plain(body)}, digest, digest, _fault_in(model, body))


def _fault_in(model: str, body: Body) -> RequestedFault | None:
    cache = plain(body).get("cachedcontent")
    asked = cache.removeprefix("cachedContents/") if isinstance(cache, str) else None
    return requested_fault(None, asked) or requested_fault(None, model)


def check_body(body: Body) -> None:
    if unknown := sorted(body.keys() - PARAMETERS):
        raise invalid(f'Invalid JSON payload received. Unknown name "{unknown[0]}": Cannot find field.')
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        raise invalid("* GenerateContentRequest.contents: contents is not specified")
    for number, content in enumerate(contents):
        if not isinstance(content, dict) or content.get("role", "user") not in ("user", "model"):
            raise invalid("Please use a valid role: user, model.")
        if not isinstance(content.get("parts"), list) or not content["parts"]:
            raise invalid(f"* GenerateContentRequest.contents[{number}].parts: contents.parts must not be empty.")
    config = plain(body.get("generationconfig"))
    for name, most in (("maxoutputtokens", 1 << 20), ("candidatecount", CANDIDATES_MAX)):
        given = config.get(name)
        if given is not None and (type(given) is not int or not 1 <= given <= most):
            raise invalid(f"* GenerateContentRequest.generation_config.{name}: must be from 1 to {most}")


def read_prompt(body: Body) -> Prompt:
    system = plain(body.get("systeminstruction")).get("parts")
    texts = [_text(system)] if system else []
    texts += [_text(content["parts"]) for content in body["contents"]]
    tools = len(json.dumps(body["tools"])) // 4 if body.get("tools") else 0
    tokens = CONTENT_TOKENS + tools + sum(CONTENT_TOKENS + count_tokens(text) for text in texts)
    return Prompt("\n".join(texts), texts[-1], tokens)


def _text(parts: Any) -> str:
    return "\n".join(
        part["text"] if isinstance(part, dict) and isinstance(part.get("text"), str) else json.dumps(part)
        for part in (parts if isinstance(parts, list) else [parts])
    )


def generate_answer(body: Body, stamp: ReplyStamp) -> GeneratedReply:
    """An answer; it calls a function if the request says that one must be called. Counts of zero are left out."""
    check_body({name: value for name, value in body.items() if name != "model"})
    prompt, config = read_prompt(body), plain(body.get("generationconfig"))
    most, count = config.get("maxoutputtokens"), config.get("candidatecount") or 1
    thinking = plain(config.get("thinkingconfig"))
    thoughts = THOUGHT_TOKENS if thinking and thinking.get("thinkingbudget") != 0 else 0
    left = None if most is None else most - thoughts
    if left is not None and left <= 0:  # the model has thought until the end
        thoughts, tokens, candidate = most or 0, 0, {"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}
    else:
        schema = config.get("responsejsonschema") or config.get("responseschema")
        form = form_answer(schema, prompt.text, stamp.fault, shows_answer(body["contents"]))
        answer = write_answer(prompt, left, stamp.answer_tokens, form)
        tokens, function = answer.tokens, _chosen_function(body)
        part: dict[str, Any] = {"text": answer.text}
        if function is not None:
            part = {"functionCall": {"name": function, "args": {"answer": answer.text}}}
        finish = "STOP" if answer.whole or function is not None else "MAX_TOKENS"
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": finish}
    cached = prompt.tokens // 2 if isinstance(body.get("cachedcontent"), str) else 0
    figures = {
        "promptTokenCount": prompt.tokens,
        "cachedContentTokenCount": cached,
        "candidatesTokenCount": tokens * count,
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": prompt.tokens + tokens * count + thoughts,
    }
    used: dict[str, Any] = {name: number for name, number in figures.items() if number}
    value = {
        "candidates": [{**candidate, "index": number} for number in range(count)],
        "usageMetadata": {**used, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt.tokens}]},
        "modelVersion": body["model"],
        "responseId": stamp.mark,
    }
    written = tokens * count + thoughts
    return GeneratedReply(json.dumps(value), prompt.tokens, written, prompt.tokens + (most or written))


def _chosen_function(body: Body) -> str | None:
    calling = plain(plain(body.get("toolconfig")).get("functioncallingconfig"))
    if calling.get("mode") != "ANY":
        return None
    named = calling.get("allowedfunctionnames")
    if isinstance(named, list) and named:
        return str(named[0])
    tools = body.get("tools")
    first = plain(tools[0]).get("functiondeclarations") if isinstance(tools, list) and tools else None
    return str(first[0].get("name")) if isinstance(first, list) and first and isinstance(first[0], dict) else None


class GeminiCalls:
    """Answers, which cost money, and the counting of their tokens, which does not."""

    def __init__(self, form: GeminiFormat) -> None:
        self._form = form

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        answer = pipeline.paid_route(self._form, self)
        count = pipeline.unpaid_route(self._form, self.count_tokens)
        stream = pipeline.unpaid_route(self._form, self.refuse_stream)
        for verb, route in (("generateContent", answer), ("countTokens", count), ("streamGenerateContent", stream)):
            add_route(router, "POST", f"{MODEL}:{verb}", route)
            router.add_route("POST", f"{VERTEX}{MODEL}:{verb}", route)
            router.add_route("POST", f"{VERTEX.replace('/v1/', '/v1beta1/')}{MODEL}:{verb}", route)
        add_route(router, "GET", "/models", pipeline.unpaid_route(self._form, self.list_models))
        add_route(router, "GET", MODEL, pipeline.unpaid_route(self._form, self.show_model))

    def read_call(self, request: web.Request, raw: bytes) -> PaidCall:
        return read_call(request.match_info["model"], read_object(raw))

    def generate(self, call: PaidCall, stamp: ReplyStamp) -> GeneratedReply:
        return generate_answer(call.body, stamp)

    def finish(self, call: PaidCall, made: GeneratedReply, charge: Callable[[], None]) -> PracticeReply:
        charge()
        return PracticeReply(200, made.text.encode())

    async def count_tokens(self, request: web.Request) -> PracticeReply:
        """Of contents, or of a whole request."""
        body = plain(read_object(await request.read()))
        whole = plain(body.get("generatecontentrequest")) or body
        check_body(whole)
        return json_reply({"totalTokens": read_prompt(whole).tokens})

    async def refuse_stream(self, request: web.Request) -> PracticeReply:
        raise invalid(NO_STREAMS)

    async def list_models(self, request: web.Request) -> PracticeReply:
        return list_page([model_object(name) for name in MODELS], "models", request.query)

    async def show_model(self, request: web.Request) -> PracticeReply:
        """Any name is a model, except the ones that ask for a fault."""
        name = request.match_info["model"]
        if requested_fault(None, name) is not None:
            raise ProviderError(404, f"models/{name} is not found.")
        return json_reply(model_object(name))


def model_object(name: str) -> dict[str, Any]:
    return {
        "name": f"models/{name}",
        "version": "1",
        "displayName": name,
        "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536,
        "supportedGenerationMethods": ["generateContent", "countTokens", "batchGenerateContent"],
    }


def list_page(entries: list[dict[str, Any]], name: str, query: Mapping[str, str]) -> PracticeReply:
    """One page of a list. Its token is where the next one begins; the last page has none."""
    size, start = query.get("pageSize", "50"), query.get("pageToken") or "0"
    if not size.isdecimal() or not start.isdecimal() or not 1 <= int(size) <= 1_000:
        raise invalid("page_size must be from 1 to 1000, and page_token one of a list.")
    end = int(start) + int(size)
    more = {"nextPageToken": str(end)} if end < len(entries) else {}
    shown = entries[int(start) : end]
    return json_reply({**({name: shown} if shown else {}), **more})
