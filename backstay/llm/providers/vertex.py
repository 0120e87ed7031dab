"""Vertex AI: Gemini's requests and replies at an address that has the project and the location, with an access token.

Its batches read and write a bucket of Cloud Storage, so they are not offered. The token is taken as any key is, out of
its variable.
"""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult

from yarl import URL

from backstay.core.errors import UsageError
from backstay.llm.chat_format import refuse
from backstay.llm.endpoint import refuse_path
from backstay.llm.lines import LinePart, LineRefused
from backstay.llm.provider import LlmProvider, ProviderAccess
from backstay.llm.providers.gemini import calls, chat

HOST_ENV: Final = "GOOGLE_VERTEX_BASE_URL"
PROJECT_ENV: Final = "GOOGLE_CLOUD_PROJECT"
LOCATION_ENV: Final = "GOOGLE_CLOUD_LOCATION"
GLOBAL: Final = "global"
ACCESS: Final = ProviderAccess(
    base_url="",
    base_url_env="VERTEX_BASE_URL",
    key_env="VERTEX_ACCESS_TOKEN",
    models_path=f"{calls.VERSION}/models",
    address_hint=f"set {PROJECT_ENV} to your project, and {LOCATION_ENV} to its location, or give --base-url",
)
_NAME: Final = re.compile(r"[\w.:-]+", re.ASCII)
_PUBLISHER: Final = "/publishers/google"
_PATH_AT_END: Final = re.compile(r"/publishers(?:/.*)?$")
_TUNED: Final = "tunedModels/"


def access_in(environ: Mapping[str, str]) -> ProviderAccess:
    """The address by project and location; Google's own client reads the same variables."""
    project, location = environ.get(PROJECT_ENV), environ.get(LOCATION_ENV) or GLOBAL
    if not project:
        return ACCESS
    for variable, name in ((PROJECT_ENV, project), (LOCATION_ENV, location)):
        if not _NAME.fullmatch(name):
            raise UsageError(f"{variable} is {name!r}, which is not a valid name", hint=f"set {variable} again")
    region = "" if location == GLOBAL else f"{location}-"
    host = environ.get(HOST_ENV) or f"https://{region}aiplatform.googleapis.com"
    return ACCESS._replace(base_url=f"{host.rstrip('/')}/v1/projects/{project}/locations/{location}")


class VertexRequests:
    """As Gemini's, but for the address, the key and the models that a user has tuned."""

    only_path = staticmethod(calls.only_path)
    is_body = staticmethod(calls.is_body)
    sends_metadata = staticmethod(calls.sends_metadata)
    url_of_body = staticmethod(calls.url_of_body)
    url_of_prompt = staticmethod(calls.url_of_prompt)
    prompt_member = staticmethod(calls.prompt_member)
    model_members = staticmethod(calls.model_members)
    with_model = staticmethod(calls.with_model)
    estimate = staticmethod(calls.estimate)
    question = staticmethod(calls.question)

    @staticmethod
    def check_base(base: SplitResult) -> None:
        refuse_path(base, _PATH_AT_END)

    @staticmethod
    def address(base: SplitResult, path: str) -> URL:
        """Below the project and the location, or below a host alone, as a gateway may be."""
        root = base.path.rstrip("/")
        version = "" if "/projects/" in root or root.endswith("/v1") else "/v1"
        below = path.removeprefix(calls.VERSION)
        return calls.address(base._replace(path=f"{root}{version}{_PUBLISHER}"), below)

    @staticmethod
    def auth_headers(base: SplitResult, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    @staticmethod
    def check_body(url: str, fields: Mapping[str, Any], may_be_background: bool) -> str | None:
        model = calls.check_body(url, fields, may_be_background)
        if not url.startswith(f"{calls.VERSION}/"):
            raise LineRefused(f"is for {url}; on Vertex AI its path begins with {calls.VERSION}", LinePart.URL)
        if model is not None and model.startswith(_TUNED):
            raise LineRefused("is for a tuned model of the Gemini API, which Vertex AI does not have", LinePart.MODEL)
        return model

    @staticmethod
    def trace_attributes(base_url: str, url: str, fields: Mapping[str, Any]) -> dict[str, str | int]:
        return {**calls.trace_attributes(base_url, url, fields), "gen_ai.provider.name": "gcp.vertex_ai"}


class VertexChat:
    """As Gemini's, without its tiers: Vertex AI chooses them in another way."""

    is_chat = staticmethod(chat.is_chat)
    own_member = staticmethod(chat.own_member)
    is_reply = staticmethod(chat.is_reply)
    reply = staticmethod(chat.reply)

    @staticmethod
    def request(
        fields: Mapping[str, Any], model: str | None, output_tokens_default: int | None
    ) -> tuple[str, dict[str, Any]]:
        url, body = chat.request(fields, model, output_tokens_default)
        if (tier := body.get("serviceTier")) is not None:
            refuse(f"has the service_tier {tier}: on Vertex AI a header chooses it, not the request")
        return url, body


PROVIDER: Final = LlmProvider(
    "vertex",
    ACCESS,
    VertexRequests(),
    calls,
    chat=VertexChat(),
    answers=chat.ANSWERS,
    format_of="gemini",
    price_list="google",
    find_access=access_in,
)
