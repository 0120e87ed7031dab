"""Vertex AI: the address out of project and location, the access token, and Gemini's bodies at paths of its own."""

import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from backstay.core.errors import UsageError
from backstay.core.models import Succeeded
from backstay.llm.endpoint import Lane
from backstay.llm.formats import InputOptions
from backstay.llm.lines import LineRefused
from backstay.llm.prices import PriceList
from backstay.llm.providers import check_base_url, check_lane, provider_named
from backstay.llm.providers.vertex import PROVIDER, access_in
from backstay.practice import Practice
from backstay.run.options import Destination
from tests.llm.call_rig import rig_to
from tests.llm.request_files import CHAT, Write, batch_line, reason, sent

URL = "/v1beta/models/gemini-2.5-flash:generateContent"
BODY = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "generationConfig": {"maxOutputTokens": 100}}
VARIABLES = ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_VERTEX_BASE_URL", "VERTEX_BASE_URL")
VERTEX = InputOptions(api="vertex")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "VERTEX_ACCESS_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environ", "base"),
    [
        ({}, ""),
        ({"GOOGLE_CLOUD_LOCATION": "us-central1"}, ""),
        (
            {"GOOGLE_CLOUD_PROJECT": "p-1"},
            "https://aiplatform.googleapis.com/v1/projects/p-1/locations/global",
        ),
        (
            {"GOOGLE_CLOUD_PROJECT": "example.com:p", "GOOGLE_CLOUD_LOCATION": "us-central1"},
            "https://us-central1-aiplatform.googleapis.com/v1/projects/example.com:p/locations/us-central1",
        ),
        (
            {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_VERTEX_BASE_URL": "http://127.0.0.1:9000/"},
            "http://127.0.0.1:9000/v1/projects/p/locations/global",
        ),
    ],
)
def test_project_and_location_make_the_address(environ: dict[str, str], base: str) -> None:
    assert access_in(environ).base_url == base
    if base:
        check_base_url(base, "vertex")


def test_a_run_without_a_project_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Destination("vertex", None)
    with pytest.raises(UsageError, match="vertex has no address") as refused:
        chosen.url("vertex")
    assert "GOOGLE_CLOUD_PROJECT" in str(refused.value.hint)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p/../q")
    with pytest.raises(UsageError, match="GOOGLE_CLOUD_PROJECT is"):
        chosen.url("vertex")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    assert chosen.url("vertex") == "https://aiplatform.googleapis.com/v1/projects/p/locations/global"
    with pytest.raises(UsageError, match="VERTEX_ACCESS_TOKEN is not set"):
        chosen.require_key("vertex")


@pytest.mark.parametrize(
    ("base", "url"),
    [
        (
            "https://l-aiplatform.googleapis.com/v1/projects/p/locations/l",
            "https://l-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google/models/gemini-2.5-flash"
            ":generateContent",
        ),
        (
            "https://gateway.example/g?team=7",
            "https://gateway.example/g/v1/publishers/google/models/gemini-2.5-flash:generateContent?team=7",
        ),
        (
            "https://gateway.example/v1/",
            "https://gateway.example/v1/publishers/google/models/gemini-2.5-flash:generateContent",
        ),
    ],
)
def test_a_request_goes_below_its_project(base: str, url: str) -> None:
    assert str(PROVIDER.requests.address(urlsplit(base), URL)) == url


def test_a_base_url_with_the_path_of_a_request_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="must not end in /publishers/google") as refused:
        check_base_url("https://x.example/v1/projects/p/locations/l/publishers/google", "vertex")
    assert refused.value.hint == "give https://x.example/v1/projects/p/locations/l"


def test_the_token_is_a_bearer() -> None:
    headers = PROVIDER.requests.auth_headers
    assert headers(urlsplit("https://x"), "t") == {"authorization": "Bearer t"}
    assert headers(urlsplit("https://x"), None) == {}


def test_there_are_calls_and_no_batches() -> None:
    assert provider_named("vertex").lanes == [Lane.CALL]
    with pytest.raises(UsageError, match="vertex has no lane batch; it has: call"):
        check_lane("vertex", Lane.BATCH)


def test_lines_are_those_of_gemini_and_chat_requests_are_translated(write: Write) -> None:
    body = json.dumps(BODY)
    [made] = sent(write(batch_line(body=body, url=URL)), VERTEX)
    assert (made.url, made.body) == (URL, body)
    chat: dict[str, Any] = {"model": "vertex:gemini-2.5-flash", "messages": [{"role": "user", "content": "hi"}]}
    [made] = sent(write(batch_line(body=json.dumps(chat), url=CHAT)), InputOptions(api="vertex", named=True))
    assert (made.url, json.loads(made.body)) == (URL, {"contents": BODY["contents"]})
    tiered = json.dumps({**chat, "service_tier": "flex"})
    assert "has the service_tier flex" in reason(write(batch_line(body=tiered, url=CHAT)), VERTEX)


@pytest.mark.parametrize(
    "url", ["/v1beta/tunedModels/mine:generateContent", "/v1/models/gemini-x:generateContent", "/v1/messages"]
)
def test_a_path_that_is_not_its_own_is_refused(url: str) -> None:
    with pytest.raises(LineRefused):
        PROVIDER.requests.check_body(url, BODY, False)


def test_prices_and_traces_are_googles() -> None:
    base = access_in({"GOOGLE_CLOUD_PROJECT": "p"}).base_url
    estimate = PROVIDER.requests.estimate(URL, json.dumps(BODY), BODY)
    assert PriceList(base, api="vertex").worst_micros(estimate) is not None
    assert PROVIDER.requests.trace_attributes(base, URL, BODY)["gen_ai.provider.name"] == "gcp.vertex_ai"


async def test_a_call_is_answered_and_billed() -> None:
    practice = Practice()
    async with practice.serving() as root:
        base = access_in({"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_VERTEX_BASE_URL": root.removesuffix("/v1")}).base_url
        async with rig_to(base, api="vertex") as rig:
            outcome = await rig.run(json.dumps(BODY), URL)
            assert isinstance(outcome, Succeeded)
            assert outcome.usage is not None
            assert outcome.usage.cost_micros == practice.bill.total.cost_micros
