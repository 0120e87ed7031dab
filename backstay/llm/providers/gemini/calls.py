"""Gemini's calls. Requests: addresses, keys, which bodies are taken, and how many tokens they need.

The model is in the path of a request, not in its body. Members may be written in camelCase or in snake_case.

Replies: the outcome of a request, the flaw of its answer, its usage and its limits.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote

from yarl import URL

from backstay.core.errors import ErrorCode
from backstay.core.failures import Failure, FailureKind, failure_of_status
from backstay.core.models import Failed, Flaw, Succeeded, Usage
from backstay.llm.bodies import BYTES_PER_TOKEN, InputSize, question_in, utf8_length
from backstay.llm.endpoint import Lane, refuse_path, url_below
from backstay.llm.lines import LinePart, LineRefused, preview, quote_json, replace_member
from backstay.llm.provider import (
    OUTPUT_TOKENS_EXPECTED,
    TOKENS_MAX,
    PriceOf,
    ProviderAccess,
    ProviderReply,
    TokenEstimate,
    request_attributes,
)
from backstay.llm.providers.openai.replies import not_an_answer, preview_reply, read_object, response_text
from backstay.llm.rate_limits import LimitHints, read_limit_headers, wait_ms_of

VERSION: Final = "/v1beta"
GENERATE: Final = "generateContent"
URL_PREFIXES: Final = (f"{VERSION}/models/", f"{VERSION}/tunedModels/", "/v1alpha/models/", "/v1/models/")

CONTENT_TOKENS: Final = 2  # of a turn, besides its text
PREAMBLE_TOKENS_MAX: Final = 64
IMAGE_TOKENS_EXPECTED: Final = 1_120
IMAGE_TOKENS_MAX: Final = 10_000  # the largest picture has less than half of that
DATA_BYTES_PER_TOKEN: Final = 50  # of base64: of a page of a PDF file, or of a sound

ACCESS: Final = ProviderAccess(
    base_url="https://generativelanguage.googleapis.com",
    base_url_env="GOOGLE_GEMINI_BASE_URL",
    key_env="GEMINI_API_KEY",
    models_path=f"{VERSION}/models",
)
OTHER_KEY_ENV: Final = "GOOGLE_API_KEY"

_BODY_KEYS: Final = frozenset(("contents", "messages", "model", "systemInstruction", "system_instruction"))
_PATH: Final = re.compile(r"/v1(?:beta|alpha)?/((?:models|tunedModels)/[^/:]*):(\w+)")
_VERSION_IN_PATH: Final = re.compile(r"/v1(?:beta|alpha)?(?=/)")
_VERSION_AT_END: Final = re.compile(r"/v1(?:beta|alpha)?$")
_PATH_AT_END: Final = re.compile(r"(?:/v1(?:beta|alpha)?)?/(?:models|tunedModels|files|batches|openai)(?:/.*)?$")
_MODELS: Final = "models/"
_UNREAD: Final = frozenset(("role", "mimetype", "thoughtsignature", "id"))
_WORDLESS: Final = frozenset(("parts", "text", "contents"))
_ASKED: Final = ("contents", "systeminstruction", "tools", "generationconfig")
# Tools that the caller runs. Any other kind runs at Google, where its output is read as input.
_OWN_TOOLS: Final = frozenset(("functiondeclarations", "computeruse"))


def access_in(environ: Mapping[str, str]) -> ProviderAccess:
    """Google's own client takes the key of either variable."""
    own, other = environ.get(ACCESS.key_env), environ.get(OTHER_KEY_ENV)
    return ACCESS._replace(key_env=OTHER_KEY_ENV) if other and not own else ACCESS


def url_of_model(model: str | None) -> str:
    name = (model or "").removeprefix(_MODELS)
    folder, slash, rest = name.partition("/")
    if slash and folder == "tunedModels":
        return f"{VERSION}/{folder}/{quote(rest, safe='')}:{GENERATE}"
    return f"{VERSION}/{_MODELS}{quote(name, safe='')}:{GENERATE}"


def model_of_url(url: str) -> str | None:
    """The model in the path of a request, without the folder of Google's own models."""
    found = _PATH.fullmatch(url.partition("?")[0])
    return unquote(found[1]).removeprefix(_MODELS) or None if found is not None else None


def check_base(base: SplitResult) -> None:
    refuse_path(base, _PATH_AT_END)


def address(base: SplitResult, path: str) -> URL:
    """The path below the base URL. If that ends in a version of the API, this version counts."""
    root = base.path.rstrip("/")
    if _VERSION_AT_END.search(root):
        if path.startswith("/upload/"):  # here the version comes later
            root, path = _VERSION_AT_END.sub("", root), path.replace(VERSION, root[root.rindex("/") :], 1)
        else:
            path = _VERSION_IN_PATH.sub("", path, count=1)
    return url_below(base, root, path)


def auth_headers(base: SplitResult, key: str | None) -> dict[str, str]:
    return {"x-goog-api-key": key} if key else {}


def only_path(lane: Lane, reconcilable: bool) -> str | None:
    """`check_body` refuses every other path, in all lanes."""
    return None


def check_body(url: str, fields: Mapping[str, Any], may_be_background: bool) -> str | None:
    path, _, query = url.partition("?")
    found = _PATH.fullmatch(path)
    verb = found[2] if found is not None else None
    if verb == "streamGenerateContent":
        raise LineRefused("asks for a stream, which is not supported", LinePart.URL)
    if verb != GENERATE:
        takes = f"Gemini takes {VERSION}/models/MODEL:{GENERATE}, and chat requests, which are translated"
        raise LineRefused(f"is for {path}; {takes}", LinePart.URL)
    if any(name == "key" for name, _ in parse_qsl(query, keep_blank_values=True)):
        raise LineRefused("has a key in its url, which is stored; set the variable of the key instead", LinePart.URL)
    if (model := model_of_url(url)) is None:
        raise LineRefused("names no model", LinePart.MODEL)
    named = fields.get("model")
    if named is not None and str(named).removeprefix(_MODELS) != model:
        raise LineRefused(f"has the model {preview(named)} in its body and {model} in its url", LinePart.MODEL)
    if not isinstance(contents := fields.get("contents"), list) or not contents:
        raise LineRefused("has no contents", LinePart.BODY)
    return model


def is_body(fields: Mapping[str, Any]) -> bool:
    return not _BODY_KEYS.isdisjoint(fields)


def sends_metadata(fields: Mapping[str, Any]) -> bool:
    return False


def url_of_body(fields: Mapping[str, Any], model: str | None) -> str:
    return url_of_model(model)


def url_of_prompt(model: str | None) -> str:
    return url_of_model(model)


def prompt_member(url: str, prompt: str, is_text: bool) -> str:
    return f'"contents":[{{"role":"user","parts":[{{"text":{prompt}}}]}}]' if is_text else f'"contents":{prompt}'


def model_members(fields: Mapping[str, Any], model: str | None) -> list[str]:
    return []


def with_model(url: str, body: str, model: str) -> tuple[str, str]:
    """The model is in the path; a body may repeat it."""
    query = url.partition("?")[2]
    return url_of_model(model) + (f"?{query}" if query else ""), replace_member(body, "model", quote_json(model))


def trace_attributes(base_url: str, url: str, fields: Mapping[str, Any]) -> dict[str, str | int]:
    tokens = plain(plain(fields).get("generationconfig")).get("maxoutputtokens")
    return request_attributes(base_url, "generate_content", "gcp.gemini", model_of_url(url), tokens)


def question(fields: Mapping[str, Any]) -> str | None:
    return question_in(fields.get("contents"), "parts")


def plain(value: object) -> dict[str, Any]:
    """An object by its names without their spelling: generation_config and generationConfig are the same."""
    return {_name(name): inner for name, inner in value.items()} if isinstance(value, dict) else {}


def _name(name: str) -> str:
    return name.replace("_", "").lower()


def estimate(
    url: str, body: str, fields: Mapping[str, Any], output_tokens_expected: int = OUTPUT_TOKENS_EXPECTED
) -> TokenEstimate:
    """A reply, the model's thinking included, never has more than `maxOutputTokens`."""
    named = plain(fields)
    config = plain(named.get("generationconfig"))
    read = _Input()
    for name in _ASKED:
        read.add(named.get(name))
    hosted = _has_hosted_tools(named.get("tools"))
    most: int | None = None
    if read.bounded and not hosted and not named.get("cachedcontent"):
        # A token is a byte at least, of JSON too; and its punctuation makes up for what surrounds a turn.
        most = utf8_length(body) - read.data_bytes + read.data_tokens_max + PREAMBLE_TOKENS_MAX
    tokens, count = config.get("maxoutputtokens"), config.get("candidatecount")
    bound = tokens if type(tokens) is int and tokens > 0 else None
    replies = count if type(count) is int and count > 1 else 1
    expected = output_tokens_expected if bound is None else min(bound, output_tokens_expected)
    tier = named.get("servicetier")
    return TokenEstimate(
        -(-read.bytes // BYTES_PER_TOKEN) + read.tokens,
        expected * replies,
        None if bound is None else bound * replies,
        most,
        replies,
        one_pass=not hosted,
        model=model_of_url(url),
        tier=tier.lower() if isinstance(tier, str) else None,
    )


class _Input(InputSize):
    def add_object(self, value: dict[str, Any]) -> None:
        if "parts" in value:
            self.tokens += CONTENT_TOKENS
        for given, inner in value.items():
            name = _name(given)
            if name == "inlinedata":
                self._add_data(plain(inner))
            elif name == "filedata":
                self.bounded = False  # how long it is is not known before it is read
                self.tokens += IMAGE_TOKENS_EXPECTED
            elif name not in _UNREAD:
                self.add(inner)
                self.bytes += 0 if name in _WORDLESS else len(given)

    def _add_data(self, data: dict[str, Any]) -> None:
        size = utf8_length(text) if isinstance(text := data.get("data"), str) else 0
        if str(data.get("mimetype")).startswith("image/"):
            self.data_bytes += size
            self.tokens += IMAGE_TOKENS_EXPECTED
            self.data_tokens_max += IMAGE_TOKENS_MAX
            return
        self.bounded = False
        self.tokens += size // DATA_BYTES_PER_TOKEN


def _has_hosted_tools(tools: object) -> bool:
    """Tools that Google runs itself: their output is read, and paid for, as often as the model decides."""
    if tools is None:
        return False
    if not isinstance(tools, list):
        return True
    return any(not isinstance(tool, dict) or not _OWN_TOOLS.issuperset(map(_name, tool)) for tool in tools)


CANDIDATES_LOOKED_MAX: Final = 256
DETAILS_LOOKED_MAX: Final = 50
# The codes of errors as gRPC numbers and names them, each with the status that it has as a reply of its own.
_CODES: Final[tuple[tuple[int, str, int], ...]] = (
    (1, "CANCELLED", 499),
    (2, "UNKNOWN", 500),
    (3, "INVALID_ARGUMENT", 400),
    (4, "DEADLINE_EXCEEDED", 504),
    (5, "NOT_FOUND", 404),
    (6, "ALREADY_EXISTS", 409),
    (7, "PERMISSION_DENIED", 403),
    (8, "RESOURCE_EXHAUSTED", 429),
    (9, "FAILED_PRECONDITION", 400),
    (10, "ABORTED", 409),
    (11, "OUT_OF_RANGE", 400),
    (12, "UNIMPLEMENTED", 501),
    (13, "INTERNAL", 500),
    (14, "UNAVAILABLE", 503),
    (15, "DATA_LOSS", 500),
    (16, "UNAUTHENTICATED", 401),
)
STATUS_OF_NUMBER: Final = {number: status for number, _, status in _CODES}
STATUS_OF_NAME: Final = {name: status for _, name, status in _CODES}
_NAME_OF_NUMBER: Final = {number: name for number, name, _ in _CODES}

# The account must wait for a person or for the next day, whatever the status is.
_HOLDING: Final = frozenset(
    (
        "API_KEY_INVALID",
        "API_KEY_EXPIRED",
        "API_KEY_SERVICE_BLOCKED",
        "API_KEY_IP_ADDRESS_BLOCKED",
        "BILLING_DISABLED",
        "SERVICE_DISABLED",
        "CONSUMER_SUSPENDED",
        "CONSUMER_INVALID",
        "ACCESS_TOKEN_EXPIRED",
        "ACCOUNT_STATE_INVALID",
        "CREDENTIALS_MISSING",
    )
)
_PRECONDITION: Final = "FAILED_PRECONDITION"  # the region, or billing that is not enabled
_UNREADY_FILE: Final = re.compile(r"\bnot in an ACTIVE state\b")  # the one precondition that is about a request
# A refusal for too many requests never quotes the request.
_SPENT: Final = re.compile(r"spend(?:ing)? (?:cap|limit)|prepa(?:id|y(?:ment)?) credits?", re.IGNORECASE)

_FLAW_OF_REASON: Final[Mapping[str, Flaw]] = {
    **dict.fromkeys(("MAX_TOKENS", "OTHER", "CONTINUATION", "LANGUAGE", "NO_IMAGE", "IMAGE_OTHER"), Flaw.TRUNCATED),
    **dict.fromkeys(("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"), Flaw.TRUNCATED),
    **dict.fromkeys(("TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE"), Flaw.TRUNCATED),
    **dict.fromkeys(("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"), Flaw.FILTERED),
    **dict.fromkeys(("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR"), Flaw.FILTERED),
}
_TIERS: Final = {"priority": "priority", "flex": "flex", "on_demand_priority": "priority", "on_demand_flex": "flex"}
_DETAILS: Final = ("promptTokensDetails", "cacheTokensDetails", "candidatesTokensDetails", "toolUsePromptTokensDetails")
_COUNTS: Final = (
    "promptTokenCount",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "toolUsePromptTokenCount",
    "totalTokenCount",
)


def limit_hints(reply: ProviderReply, now_ms: int) -> LimitHints:
    """The body of an error says how long to wait; there are no headers with limits."""
    hints = read_limit_headers(reply.headers, now_ms, ())
    if 200 <= reply.status <= 299:
        return hints
    for detail in _details(_error_in(reply.text)):
        delay = detail.get("retryDelay")
        if isinstance(delay, str) and (wait_ms := wait_ms_of(delay, now_ms)) is not None:
            return hints._replace(retry_after_ms=wait_ms)
    return hints


def read_reply(reply: ProviderReply, hints: LimitHints, price_of: PriceOf) -> Succeeded | Failed:
    if not 200 <= reply.status <= 299:
        return _read_refusal(reply, hints)
    read = read_object(reply)
    if isinstance(read, Failed):
        return read
    text, body = read
    if "error" in body and "candidates" not in body:
        failure = failure_of_error(body["error"], hints.wait_ms)
        return Failed(replace(failure, provider_status=reply.status), reply=preview_reply(reply))
    if not any(isinstance(body.get(name), kind) for name, kind in _ANSWER.items()):
        return not_an_answer(reply, "an answer")
    return Succeeded(response_text(reply, text), usage_of(body, price_of), reply.status, flaw_of(body))


_ANSWER: Final[Mapping[str, type]] = {"candidates": list, "promptFeedback": dict, "usageMetadata": dict}


def flaw_of(body: Mapping[str, Any]) -> Flaw | None:
    """The worst flaw of all candidates. A prompt that was blocked has none."""
    feedback, candidates = body.get("promptFeedback"), body.get("candidates")
    if isinstance(feedback, dict) and feedback.get("blockReason"):
        return Flaw.FILTERED
    if not isinstance(candidates, list) or not candidates:
        return Flaw.TRUNCATED
    reasons = (each.get("finishReason") for each in islice(candidates, CANDIDATES_LOOKED_MAX) if isinstance(each, dict))
    found = {_FLAW_OF_REASON.get(reason) for reason in reasons if isinstance(reason, str)}
    return next((flaw for flaw in (Flaw.FILTERED, Flaw.TRUNCATED) if flaw in found), None)


def usage_of(body: Mapping[str, Any], price_of: PriceOf) -> Usage:
    """All tokens read, those of tools and of the cache included; all tokens written, the thinking included; and their
    cost. None: it is not known. Counts of zero are left out in a reply."""
    said, model = body.get("usageMetadata"), body.get("modelVersion")
    said = said if isinstance(said, dict) else {}
    counts = {name: count_in(said[name]) for name in _COUNTS if said.get(name) is not None}
    if "promptTokenCount" not in counts or None in counts.values():
        return Usage()
    known = {name: count or 0 for name, count in counts.items()}
    read = known["promptTokenCount"] + known.get("toolUsePromptTokenCount", 0)
    written = known.get("candidatesTokenCount", 0) + known.get("thoughtsTokenCount", 0)
    # Tokens that only the total contains must be output.
    written = max(written, known.get("totalTokenCount", 0) - read)
    if max(read, written) > TOKENS_MAX:
        return Usage()
    tiers = (str(said.get(name)).lower() for name in ("serviceTier", "trafficType"))
    tier = next((_TIERS[name] for name in tiers if name in _TIERS), None)
    price = price_of(model, tier) if isinstance(model, str) else None
    if price is None:
        return Usage(read, written)
    cost = price.cost_micros(read, written, known.get("cachedContentTokenCount", 0))
    # The list also knows what sounds and pictures cost.
    figures = {**known, **{name: found for name in _DETAILS if (found := _modalities(said.get(name)))}}
    listed = price_of.usage_by_list(str(model), tier, {"modelVersion": model, "usageMetadata": figures})
    return Usage(read, written, max([cost, *(used.cost_micros or 0 for used in listed)]))


def _modalities(details: object) -> list[dict[str, Any]]:
    found = islice(details, DETAILS_LOOKED_MAX) if isinstance(details, list) else ()
    return [
        {"modality": each.get("modality"), "tokenCount": count}
        for each in found
        if isinstance(each, dict) and (count := count_in(each.get("tokenCount"))) is not None
    ]


def count_in(value: object) -> int | None:
    """A count; numbers of 64 bits are written as text."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 15:
        value = int(value)
    return value if type(value) is int and 0 <= value <= TOKENS_MAX else None


def failure_of_error(error: object, retry_after_ms: int | None = None, status: int | None = None) -> Failure:
    """The failure behind an error object; `status`: that of the reply, if it is one. Otherwise its name or its code
    gives it, which is a status or a number of gRPC."""
    named = error if isinstance(error, Mapping) else {}
    label = _label(named)
    message = named.get("message")
    sentence = message if isinstance(message, str) else json.dumps(message) if message else ""
    if status is None:
        status = _status(named)
        sentence = sentence or "the provider reports an error without a message"
    reasons = {detail.get("reason") for detail in _details(error) if isinstance(detail.get("reason"), str)}
    held = sorted(str(reason) for reason in reasons & _HOLDING)
    shown = f"{sentence} ({held[0] if held else label})" if sentence and (held or label) else sentence or label
    failure = failure_of_status(status, shown, retry_after_ms if status in (408, 409, 429) or status >= 500 else None)
    if label == _PRECONDITION and _UNREADY_FILE.search(sentence):
        return replace(failure, kind=FailureKind.INFRASTRUCTURE)
    is_spent = status == 429 and (_is_for_long(error) or _SPENT.search(sentence))
    if held or label == _PRECONDITION or is_spent:
        return replace(failure, code=ErrorCode.FORBIDDEN, kind=FailureKind.HELD, retry_after_ms=None)
    return replace(failure, kind=FailureKind.INFRASTRUCTURE) if status in (409, 499) else failure


def _label(error: Mapping[str, Any]) -> str:
    name, code = error.get("status"), error.get("code")
    if isinstance(name, str) and name:
        return name
    return _NAME_OF_NUMBER.get(code, "") if type(code) is int else ""


def _status(error: Mapping[str, Any]) -> int:
    name, code = error.get("status"), error.get("code")
    if type(code) is int and 400 <= code <= 599:
        return code
    by_name = STATUS_OF_NAME.get(name) if isinstance(name, str) else None
    return by_name or (STATUS_OF_NUMBER.get(code, 500) if type(code) is int else 500)


def _is_for_long(error: object) -> bool:
    """Whether a limit of a day is used up, or is zero: waiting for a minute does not help."""
    for detail in _details(error):
        violations = detail.get("violations")
        for each in islice(violations, DETAILS_LOOKED_MAX) if isinstance(violations, list) else ():
            if isinstance(each, dict) and ("PerDay" in str(each.get("quotaId")) or each.get("quotaValue") == "0"):
                return True
    return False


def _details(error: object) -> Iterator[Mapping[str, Any]]:
    details = error.get("details") if isinstance(error, Mapping) else None
    if isinstance(details, list):
        yield from (each for each in islice(details, DETAILS_LOOKED_MAX) if isinstance(each, dict))


def _read_refusal(reply: ProviderReply, hints: LimitHints) -> Failed:
    status = reply.status
    if 300 <= status <= 399:
        target = reply.headers.get("location", "somewhere else")
        message = f"the provider redirects to {target}, where nothing is sent; check the base URL"
        return Failed(failure_of_status(status, message), reply=preview_reply(reply))
    return Failed(failure_of_error(_error_in(reply.text), hints.wait_ms, status), reply=preview_reply(reply))


def _error_in(text: str) -> object:
    """Some errors come in a list of one."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    body = body[0] if isinstance(body, list) and body else body
    return body.get("error") if isinstance(body, dict) else None
