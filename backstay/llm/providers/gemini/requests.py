"""Gemini's requests: addresses, keys, which bodies are taken, and how many tokens they need.

The model is in the path of a request, not in its body. Members may be written in camelCase or in snake_case.
"""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote

from yarl import URL

from backstay.llm.bodies import BYTES_PER_TOKEN, InputSize, utf8_length
from backstay.llm.endpoint import Lane, refuse_path, url_below
from backstay.llm.lines import LinePart, LineRefused, preview, quote_json, replace_member
from backstay.llm.provider import OUTPUT_TOKENS_EXPECTED, ProviderAccess, TokenEstimate, request_attributes

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
