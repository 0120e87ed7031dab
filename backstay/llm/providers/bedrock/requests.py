"""Bedrock's requests: the model is in the path. Which bodies are taken, and how many tokens they need."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote

from yarl import URL

from backstay.llm.bodies import BYTES_PER_TOKEN
from backstay.llm.chat_format import refuse_chat
from backstay.llm.endpoint import Lane, refuse_path
from backstay.llm.lines import LinePart, LineRefused, preview
from backstay.llm.provider import OUTPUT_TOKENS_EXPECTED, ProviderAccess, TokenEstimate, request_attributes
from backstay.llm.providers.anthropic.requests import estimate as estimate_message
from backstay.llm.providers.bedrock.aws import KEY_ENV, REGIONS, check_ready, control_url

MODEL: Final = "/model/"
JOBS: Final = "/model-invocation-job"
MODELS: Final = "/foundation-models"
CONVERSE: Final = "converse"
INVOKE: Final = "invoke"

PREAMBLE_TOKENS_MAX: Final = 64  # around the messages
TOOLS_TOKENS_MAX: Final = 2_048  # before the first tool
MEDIA_TOKENS_EXPECTED: Final = 1_600
MEDIA_BYTES_MIN: Final = 1_000  # a text in such a member that is shorter is a name or a format

ACCESS: Final = ProviderAccess(
    base_url="",
    base_url_env="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    key_env=KEY_ENV,
    models_path=MODELS,
    needs_key=False,
    address_hint=f"set {REGIONS[0]} to the region, for example us-east-1, or give --base-url",
    check_ready=check_ready,
)

_MAKERS: Final = (
    "ai21.",
    "amazon.",
    "anthropic.",
    "cohere.",
    "deepseek.",
    "meta.llama",
    "mistral.",
    "qwen.",
    "writer.",
)
_PLACES: Final = ("us.", "us-gov.", "eu.", "apac.", "jp.", "au.", "ca.", "global.")
MODEL_PREFIXES: Final = (*_MAKERS, *(place + maker for place in _PLACES for maker in _MAKERS), "arn:aws:bedrock:")
_PATH: Final = re.compile(rf"{MODEL}([^/?]*)/({CONVERSE}|{INVOKE})")
_PATH_AT_END: Final = re.compile(r"/(?:openai(?:/v1)?|v1|model(?:/.*)?)$")
_BODY_KEYS: Final = frozenset(("messages", "system", "inferenceConfig", "anthropic_version", "inputText"))
_NAMED: Final = ("model", "modelId")
_MEDIA: Final = frozenset(("image", "images", "video", "audio", "document", "inputImage"))
_ELSEWHERE: Final = frozenset(("s3Location", "uri", "promptVariables", "cachedContent"))
# The names of the limit of the output, in the bodies of the models.
_BOUNDS: Final = ("max_tokens", "max_completion_tokens", "max_gen_len", "maxTokens", "max_new_tokens", "maxTokenCount")
_INSIDE: Final = ("inferenceConfig", "textGenerationConfig")


def path_to(model: str, operation: str = CONVERSE) -> str:
    return f"{MODEL}{quote(model, safe='-._~')}/{operation}"


def model_in(url: str) -> str:
    """The model in the path of a call; empty for any other path."""
    named = _PATH.fullmatch(url.partition("?")[0])
    return "" if named is None else unquote(named[1])


def is_converse(url: str) -> bool:
    return url.endswith(f"/{CONVERSE}")


def check_base(base: SplitResult) -> None:
    refuse_path(base._replace(path=base.path.rstrip("/")), _PATH_AT_END)


def address(base: SplitResult, path: str) -> URL:
    """The URL is not encoded again, because the signature covers these characters. Models and batches are at another
    host than calls."""
    where = path.partition("#")[0]
    if where.startswith((JOBS, MODELS)):
        return URL(f"{control_url(base)}{where}", encoded=True)
    if base.query:
        where += f"{'&' if '?' in where else '?'}{base.query}"
    return URL(f"{base.scheme}://{base.netloc}{base.path.rstrip('/')}{where}", encoded=True)


def auth_headers(base: SplitResult, key: str | None) -> dict[str, str]:
    """A Bedrock API key. Without one, every request is signed."""
    return {"authorization": f"Bearer {key}"} if key else {}


def only_path(lane: Lane, reconcilable: bool) -> str | None:
    return None


def check_body(url: str, fields: Mapping[str, Any], may_be_background: bool) -> str | None:
    named = _PATH.fullmatch(url)
    if named is None:
        known = f"{MODEL}MODEL/{CONVERSE}, {MODEL}MODEL/{INVOKE}"
        raise LineRefused(f"is for {url}; Bedrock takes {known}, and chat requests, which are translated", LinePart.URL)
    if not (model := unquote(named[1])):
        raise LineRefused("names no model", LinePart.MODEL)
    if fields.get("stream"):
        raise LineRefused("asks for a stream, which is not supported", LinePart.BODY)
    if named[2] == INVOKE:
        if not fields:
            raise LineRefused("has an empty body", LinePart.BODY)
        return model
    for name in _NAMED:
        if name in fields:
            reason = f"has {name} {preview(fields[name])} in its body; Bedrock takes the model in the url, or --model"
            raise LineRefused(reason, LinePart.BODY)
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise LineRefused("has no messages", LinePart.BODY)
    refuse_chat(fields, url)
    return model


def is_body(fields: Mapping[str, Any]) -> bool:
    return not _BODY_KEYS.isdisjoint(fields)


def sends_metadata(fields: Mapping[str, Any]) -> bool:
    """Never: Bedrock's own metadata is called requestMetadata."""
    return False


def url_of_body(fields: Mapping[str, Any], model: str | None) -> str:
    """Converse, unless the body is one that only a model itself understands."""
    own = "messages" not in fields or "anthropic_version" in fields or "schemaVersion" in fields
    return path_to(model or "", INVOKE if own else CONVERSE)


def url_of_prompt(model: str | None) -> str:
    return path_to(model or "")


def prompt_member(url: str, prompt: str, is_text: bool) -> str:
    if not is_text:
        return f'"messages":{prompt}'
    return f'"messages":[{{"role":"user","content":[{{"text":{prompt}}}]}}]'


def model_members(fields: Mapping[str, Any], model: str | None) -> list[str]:
    """The model is in the path."""
    return []


def with_model(url: str, body: str, model: str) -> tuple[str, str]:
    return path_to(model, CONVERSE if is_converse(url) else INVOKE), body


def trace_attributes(base_url: str, url: str, fields: Mapping[str, Any]) -> dict[str, str | int]:
    return request_attributes(base_url, "chat", "aws.bedrock", model_in(url), output_bound(fields))


def output_bound(fields: Mapping[str, Any]) -> int | None:
    """The bound of the output that a body sets: each model has another name for it."""
    for place in (fields, *(inside for name in _INSIDE if isinstance(inside := fields.get(name), dict))):
        for name in _BOUNDS:
            tokens = place.get(name)
            if type(tokens) is int and tokens > 0:
                return tokens
    return None


def estimate(
    url: str, body: str, fields: Mapping[str, Any], output_tokens_expected: int = OUTPUT_TOKENS_EXPECTED
) -> TokenEstimate:
    model, tier = model_in(url) or None, tier_of(fields)
    if "anthropic_version" in fields:
        return estimate_message(url, body, fields, output_tokens_expected)._replace(model=model, tier=tier)
    bound = output_bound(fields)
    media, elsewhere = _media_bytes(fields)
    size = len(body.encode("utf-8", "surrogatepass"))
    most: int | None = None
    if not media and not elsewhere:  # a token is a byte at least; pictures and documents have no such bound
        most = size + PREAMBLE_TOKENS_MAX + (TOOLS_TOKENS_MAX if "toolConfig" in fields or "tools" in fields else 0)
    return TokenEstimate(
        -(-(size - sum(media)) // BYTES_PER_TOKEN) + len(media) * MEDIA_TOKENS_EXPECTED,
        output_tokens_expected if bound is None else min(bound, output_tokens_expected),
        bound,
        most,
        model=model,
        tier=tier,
    )


def tier_of(fields: Mapping[str, Any]) -> str | None:
    """Only a tier that costs more than the usual one counts."""
    tier = fields.get("serviceTier")
    named = tier.get("type") if isinstance(tier, dict) else None
    return "priority" if named == "priority" else None


def _media_bytes(value: Any, inside: bool = False) -> tuple[list[int], bool]:
    """The bytes of each picture, document and the like; and whether anything is kept elsewhere."""
    if isinstance(value, str):
        return ([len(value)] if inside and len(value) >= MEDIA_BYTES_MIN else []), False
    parts: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = [("", each) for each in value]
    found: list[int] = []
    elsewhere = False
    for name, part in parts:
        media, away = _media_bytes(part, inside or name in _MEDIA)
        if name in _MEDIA and not media:
            media = [len(json.dumps(part))]
        found += media
        elsewhere = elsewhere or away or name in _ELSEWHERE
    return found, elsewhere
