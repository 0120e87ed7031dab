"""AWS Bedrock's calls: Converse, the models' own bodies, and the list of models, as AWS's clients know them."""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final

from aiohttp import web

from backstay.practice import anthropic
from backstay.practice.faults import model_named_after, requested_fault
from backstay.practice.pipeline import LimitUse, PaidCall, Pipeline
from backstay.practice.replies import (
    JSON,
    NO_STREAMS,
    ErrorReason,
    GeneratedReply,
    PracticeReply,
    Prompt,
    ProviderError,
    ReplyStamp,
    count_tokens,
    flatten_content,
    json_reply,
    write_answer,
)
from backstay.practice.structured import form_answer, shows_answer

CALL: Final = "/model/{model}"
MODELS: Final = ("anthropic.claude-practice-v1:0", "amazon.nova-practice-v1:0")
MESSAGE_TOKENS: Final = 4  # of a message, beside its text
UNKNOWN_MODEL: Final = model_named_after(404)
CONVERSE, INVOKE = "converse", "invoke"
STREAMS: Final = ("converse-stream", "invoke-with-response-stream")
PARAMETERS: Final = frozenset(
    (
        "messages",
        "system",
        "inferenceConfig",
        "toolConfig",
        "guardrailConfig",
        "additionalModelRequestFields",
        "promptVariables",
        "additionalModelResponseFieldPaths",
        "requestMetadata",
        "performanceConfig",
        "serviceTier",
        "outputConfig",
    )
)
TYPE_OF_STATUS: Final = {
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    409: "ConflictException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}
NOT_IN_DIGEST: Final = "requestMetadata"
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def invalid(message: str) -> ProviderError:
    return ProviderError(400, message)


def error_type(error: ProviderError) -> str:
    if error.reason is ErrorReason.QUOTA:
        return "ServiceQuotaExceededException"
    usual = "InternalServerException" if error.status >= 500 or error.status == 0 else "ValidationException"
    return TYPE_OF_STATUS.get(error.status, usual)


class BedrockFormat:
    """AWS's keys, request ids and errors. AWS does not report how much of a limit is left."""

    def api_key(self, headers: Mapping[str, str]) -> str | None:
        """A Bedrock API key, or the id of the access key that signed the request."""
        scheme, _, rest = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return rest
        named = rest.partition("Credential=")[2]
        return named.partition("/")[0] or None

    def id_headers(self, mark: str) -> Mapping[str, str]:
        return {"x-amzn-RequestId": f"req-{mark}"}

    def error_reply(self, error: ProviderError) -> PracticeReply:
        status = {401: 403, 0: 500}.get(error.status, 400 if error.reason is ErrorReason.QUOTA else error.status)
        headers = {**JSON, "x-amzn-ErrorType": error_type(error), **error.headers}
        return PracticeReply(status, json.dumps({"message": error.message}).encode(), headers)

    def limit_headers(self, use: LimitUse) -> Mapping[str, str]:
        return {}

    def limit_error(self, use: LimitUse) -> ProviderError:
        message = f"Too many {use.exceeded}, please wait before trying again (practice)."
        return ProviderError(429, message, ErrorReason.RATE_LIMIT)


BEDROCK: Final = BedrockFormat()


def read_object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise invalid("The request body is not a valid JSON object.")
    return body


def read_call(model: str, operation: str, body: dict[str, Any]) -> PaidCall:
    """A fault is requested by the model, or by `user` in requestMetadata, each with a name such as practice-503."""
    said = {name: value for name, value in body.items() if name != NOT_IN_DIGEST}
    digest = hashlib.blake2b(f"{model} {_canonical(said)}".encode(), digest_size=8).hexdigest()
    metadata = body.get("requestMetadata")
    user = metadata.get("user") if isinstance(metadata, dict) else None
    requested = requested_fault(None, user) or requested_fault(None, model)
    return PaidCall(f"{model}/{operation}", body, digest, digest, requested)


def generate(call: PaidCall, stamp: ReplyStamp) -> GeneratedReply:
    model, _, operation = call.url.rpartition("/")
    if model == UNKNOWN_MODEL:
        raise ProviderError(404, f"Could not resolve the foundation model from the model identifier: {model}")
    body = call.body
    if operation == CONVERSE:
        if unknown := sorted(body.keys() - PARAMETERS):
            raise invalid(f"extraneous key [{unknown[0]}] is not permitted")
        return _converse(body, stamp)
    if "anthropic_version" in body:
        own = {name: value for name, value in body.items() if name not in ("anthropic_version", "anthropic_beta")}
        return anthropic.generate_message({**own, "model": model}, stamp)
    if "messages" in body:
        return _converse(body, stamp)
    return _complete(body, stamp)


def _converse(body: dict[str, Any], stamp: ReplyStamp) -> GeneratedReply:
    messages = _messages(body)
    texts = [flatten_content(body["system"])] if body.get("system") else []
    texts += [flatten_content(message["content"]) for message in messages]
    tools = len(json.dumps(body["toolConfig"])) // 4 if body.get("toolConfig") else 0
    tokens = MESSAGE_TOKENS + tools + sum(MESSAGE_TOKENS + count_tokens(text) for text in texts)
    prompt, bound = Prompt("\n".join(texts), texts[-1], tokens), _output_bound(body.get("inferenceConfig"))
    form = form_answer(_schema_in(body), prompt.text, stamp.fault, shows_answer(messages))
    answer = write_answer(prompt, bound, stamp.answer_tokens, form)
    content: dict[str, Any] = {"text": answer.text}
    reason = "end_turn" if answer.whole else "max_tokens"
    if (tool := _chosen_tool(body.get("toolConfig"))) is not None:
        content = {"toolUse": {"toolUseId": f"tooluse_{stamp.mark}", "name": tool, "input": {"answer": answer.text}}}
        reason = "tool_use"
    counts = {"inputTokens": tokens, "outputTokens": answer.tokens, "totalTokens": tokens + answer.tokens}
    value = {
        "output": {"message": {"role": "assistant", "content": [content]}},
        "stopReason": reason,
        "usage": {**counts, "cacheReadInputTokens": 0, "cacheWriteInputTokens": 0},
        "metrics": {"latencyMs": 1},
    }
    return GeneratedReply(json.dumps(value), tokens, answer.tokens, tokens + (bound or answer.tokens))


def _schema_in(body: dict[str, Any]) -> Any:
    config = body.get("outputConfig")
    form = config.get("textFormat") if isinstance(config, dict) else None
    structure = form.get("structure") if isinstance(form, dict) else None
    given = structure.get("jsonSchema") if isinstance(structure, dict) else None
    return json.loads(given["schema"]) if isinstance(given, dict) and isinstance(given.get("schema"), str) else None


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise invalid("A conversation must start with a user message. Try again with a conversation of messages.")
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    for number, (role, message) in enumerate(zip(roles, messages, strict=True)):
        if role not in ("user", "assistant") or not isinstance(message.get("content"), list):
            raise invalid(f"The value at messages.{number} is not a valid message.")
    if any(first == second for first, second in pairwise(roles)):
        raise invalid("A conversation must alternate between user and assistant roles.")
    return messages


def _complete(body: dict[str, Any], stamp: ReplyStamp) -> GeneratedReply:
    """As Llama does it."""
    text = body.get("prompt")
    if not isinstance(text, str):
        raise invalid("required key [prompt] not found")
    tokens, bound = MESSAGE_TOKENS + count_tokens(text), _output_bound(body)
    answer = write_answer(Prompt(text, text, tokens), bound, stamp.answer_tokens)
    value = {
        "generation": answer.text,
        "prompt_token_count": tokens,
        "generation_token_count": answer.tokens,
        "stop_reason": "stop" if answer.whole else "length",
    }
    return GeneratedReply(json.dumps(value), tokens, answer.tokens, tokens + (bound or answer.tokens))


def _output_bound(config: Any) -> int | None:
    given = (config.get("maxTokens") or config.get("max_gen_len")) if isinstance(config, dict) else None
    if given is not None and (type(given) is not int or given < 1):
        raise invalid("The value at inferenceConfig.maxTokens must be at least 1.")
    return given


def _chosen_tool(config: Any) -> str | None:
    choice = config.get("toolChoice") if isinstance(config, dict) else None
    if not isinstance(choice, dict) or not isinstance(config, dict):
        return None
    if "tool" in choice:
        return str(choice["tool"].get("name"))
    return str(config["tools"][0]["toolSpec"]["name"]) if "any" in choice else None


class BedrockCalls:
    def __init__(self, operation: str) -> None:
        self._operation = operation

    def read_call(self, request: web.Request, raw: bytes) -> PaidCall:
        return read_call(request.match_info["model"], self._operation, read_object(raw))

    def generate(self, call: PaidCall, stamp: ReplyStamp) -> GeneratedReply:
        return generate(call, stamp)

    def finish(self, call: PaidCall, made: GeneratedReply, charge: Callable[[], None]) -> PracticeReply:
        charge()
        headers = dict(JSON)
        if self._operation == INVOKE:
            headers["X-Amzn-Bedrock-Input-Token-Count"] = str(made.input_tokens)
            headers["X-Amzn-Bedrock-Output-Token-Count"] = str(made.output_tokens)
        return PracticeReply(200, made.text.encode(), headers)


class BedrockRoutes:
    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        for operation in (CONVERSE, INVOKE):
            router.add_route("POST", f"{CALL}/{operation}", pipeline.paid_route(BEDROCK, BedrockCalls(operation)))
        for path in STREAMS:
            router.add_route("POST", f"{CALL}/{path}", pipeline.unpaid_route(BEDROCK, refuse_stream))
        router.add_route("POST", f"{CALL}/count-tokens", pipeline.unpaid_route(BEDROCK, count_input))
        router.add_route("GET", "/foundation-models", pipeline.unpaid_route(BEDROCK, list_models))


async def refuse_stream(request: web.Request) -> PracticeReply:
    raise invalid(NO_STREAMS)


async def count_input(request: web.Request) -> PracticeReply:
    """Of a request to Converse, or of a model's own body, which is packed in base64."""
    given = read_object(await request.read()).get("input")
    if isinstance(given, dict) and isinstance(given.get("converse"), dict):
        operation, body = CONVERSE, given["converse"]
    elif isinstance(given, dict) and isinstance(given.get("invokeModel"), dict):
        operation, body = INVOKE, read_object(_unpack(given["invokeModel"].get("body")))
    else:
        raise invalid("The value at input must have one of: converse, invokeModel.")
    made = generate(read_call(request.match_info["model"], operation, body), ReplyStamp("", 0))
    return json_reply({"inputTokens": made.input_tokens})


def _unpack(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        raise invalid("The value at input.invokeModel.body is not base64.") from None


async def list_models(request: web.Request) -> PracticeReply:
    arn = "arn:aws:bedrock:us-east-1::foundation-model/"
    return json_reply({"modelSummaries": [{"modelArn": f"{arn}{name}", "modelId": name} for name in MODELS]})
