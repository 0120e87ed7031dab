"""All official clients at one practice provider: one bill, the same faults, and each client's own exceptions."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anthropic
import boto3  # type: ignore[import-untyped]
import groq
import openai
import pytest
import together
from botocore.config import Config  # type: ignore[import-untyped]
from google import genai
from google.genai import types
from mistralai.client import Mistral

from backstay.practice import Faults, Practice

pytestmark = pytest.mark.slow

KEY = "AKIAPRACTICE00000000"
HELLO: Any = [{"role": "user", "content": "hello"}]
PARTS: Any = [{"role": "user", "content": [{"text": "hello"}]}]
STRICT: Any = {"api_key": KEY, "max_retries": 0, "_strict_response_validation": True}


class Client(NamedTuple):
    """A call to a model, with a stream or without, and the tokens that a reply tells; None: it tells none."""

    ask: Callable[[str], Any]
    stream: Callable[[], Any]
    tokens: Callable[[Any], tuple[int, int] | None]


def _chat_tokens(reply: Any) -> tuple[int, int] | None:
    return reply.usage and (reply.usage.prompt_tokens, reply.usage.completion_tokens)


def _chat_client(client: Any) -> Client:
    create = client.chat.completions.create
    return Client(
        lambda model: create(model=model, messages=HELLO),
        lambda: list(create(model="m", messages=HELLO, stream=True)),
        _chat_tokens,
    )


def _openai(root: str) -> Client:
    return _chat_client(openai.OpenAI(base_url=f"{root}/v1", **STRICT))


def _azure(root: str) -> Client:
    return _chat_client(openai.AzureOpenAI(azure_endpoint=root, api_version="2024-10-21", **STRICT))


def _groq(root: str) -> Client:
    return _chat_client(groq.Groq(base_url=root, **STRICT))


def _together(root: str) -> Client:
    return _chat_client(together.Together(base_url=f"{root}/together", **STRICT))


def _mistral(root: str) -> Client:
    chat = Mistral(api_key=KEY, server_url=f"{root}/mistral").chat
    return Client(
        lambda model: chat.complete(model=model, messages=HELLO),
        lambda: list(chat.stream(model="m", messages=HELLO)),
        _chat_tokens,
    )


def _anthropic(root: str) -> Client:
    create: Any = anthropic.Anthropic(base_url=root, **STRICT).messages.create
    return Client(
        lambda model: create(model=model, max_tokens=50, messages=HELLO),
        lambda: list(create(model="m", max_tokens=50, messages=HELLO, stream=True)),
        lambda reply: (reply.usage.input_tokens, reply.usage.output_tokens),
    )


def _gemini(root: str) -> Client:
    options = types.HttpOptions(base_url=root, retry_options=types.HttpRetryOptions(attempts=1))
    client = genai.Client(api_key=KEY, http_options=options, vertexai=False)

    def tokens(reply: Any) -> tuple[int, int] | None:
        used = reply.usage_metadata
        return used and (used.prompt_token_count, used.candidates_token_count)

    return Client(
        lambda model: client.models.generate_content(model=model, contents="hello"),
        lambda: list(client.models.generate_content_stream(model="m", contents="hello")),
        tokens,
    )


def _bedrock(root: str) -> Client:
    client = boto3.client(
        "bedrock-runtime",
        endpoint_url=root,
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key="practice-secret",
        config=Config(retries={"total_max_attempts": 1}),
    )
    return Client(
        lambda model: client.converse(modelId=model, messages=PARTS),
        lambda: client.converse_stream(modelId="m", messages=PARTS),
        lambda reply: (reply["usage"]["inputTokens"], reply["usage"]["outputTokens"]) if "usage" in reply else None,
    )


CLIENTS: dict[str, Callable[[str], Client]] = {
    "openai": _openai,
    "azure": _azure,
    "groq": _groq,
    "together": _together,
    "mistral": _mistral,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "bedrock": _bedrock,
}
FAULTS = ("400", "401", "403", "404", "429", "500", "503", "quota", "cut")
STAINLESS = (
    "BadRequestError 400",
    "AuthenticationError 401",
    "PermissionDeniedError 403",
    "NotFoundError 404",
    "RateLimitError 429",
    "InternalServerError 500",
    "InternalServerError 503",
    "RateLimitError 429",
    "APIConnectionError",
)
RAISED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("openai", "azure", "groq", "together"), STAINLESS),
    "anthropic": (*STAINLESS[:6], "ServiceUnavailableError 503", "EnforcedSpendLimitReachedError 429", STAINLESS[8]),
    "mistral": (
        *(f"SDKError {status}" for status in (400, 401, 403, 404, 429, 500, 503, 429)),
        "RemoteProtocolError",
    ),
    "gemini": (
        *(f"ClientError {status}" for status in (400, 400, 403, 404, 429)),  # a wrong key is a wrong argument
        "ServerError 500",
        "ServerError 503",
        "ClientError 429",
        "RemoteProtocolError",
    ),
    "bedrock": (
        "ValidationException 400",
        "ClientError 403",
        "AccessDeniedException 403",
        "ResourceNotFoundException 404",
        "ThrottlingException 429",
        "InternalServerException 500",
        "ServiceUnavailableException 503",
        "ServiceQuotaExceededException 400",
        "ConnectionClosedError",
    ),
}


@asynccontextmanager
async def practised(**faults: Any) -> AsyncIterator[tuple[Practice, str]]:
    practice = Practice(Faults(**{"key": KEY, **faults}))
    async with practice.serving() as base_url:
        yield practice, base_url.removesuffix("/v1")


async def error_of(ask: Callable[..., Any], *given: Any) -> Any:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # which one, the caller says
        await asyncio.to_thread(ask, *given)
    return raised.value


def described(error: Any) -> str:
    """The name of an exception, and the status if there was a reply."""
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    if isinstance(getattr(error, "response", None), dict):
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
    return f"{type(error).__name__} {status}" if isinstance(status, int) else type(error).__name__


async def test_all_clients_are_charged_on_one_bill() -> None:
    async with practised() as (practice, root):
        asked = made = 0
        for number, (name, open_client) in enumerate(CLIENTS.items(), 1):
            client = open_client(root)
            used = client.tokens(await asyncio.to_thread(client.ask, "m"))
            assert used is not None, name
            asked, made = asked + used[0], made + used[1]
            total = practice.bill.total
            assert (practice.bill.charged, total.input_tokens, total.output_tokens) == (number, asked, made), name


@pytest.mark.parametrize("name", CLIENTS)
async def test_every_fault_is_an_exception_of_the_client_and_costs_nothing(name: str) -> None:
    async with practised() as (practice, root):
        client = CLIENTS[name](root)
        for fault, expected in zip(FAULTS, RAISED[name], strict=True):
            assert described(await error_of(client.ask, f"practice-{fault}")) == expected, fault
        assert practice.bill.charged == 0


@pytest.mark.parametrize("name", CLIENTS)
async def test_faults_by_chance_outages_quotas_and_keys_are_for_all(name: str) -> None:
    async with practised() as (practice, root):
        client = CLIENTS[name](root)
        raised = dict(zip(FAULTS, RAISED[name], strict=True))
        server = {
            raised["500"],
            raised["503"],
            raised["500"].replace("500", "502"),
            raised["503"].replace("503", "502"),
        }
        for change, expected in (
            ({"fail": 1.0}, server),
            ({"fail": 0.0, "throttle": 1.0}, {raised["429"]}),
            ({"throttle": 0.0, "quota": 0}, {raised["quota"]}),
            ({"quota": None, "key": "another"}, {raised["401"]}),
            ({"key": KEY, "outage_seconds": 60.0}, {raised["503"], raised["cut"]}),
        ):
            practice.change(**change)
            assert described(await error_of(client.ask, "m")) in expected, change
        assert practice.bill.charged == 0


def _wait_told(name: str, error: Any) -> float | None:
    """What the client shows of the time to wait."""
    if name == "gemini":  # it is in the body
        details = error.details["error"]["details"]
        return next(float(each["retryDelay"].removesuffix("s")) for each in details if "retryDelay" in each)
    if name == "bedrock":  # it tells nobody
        return None
    headers = error.headers if name == "mistral" else error.response.headers
    remaining = "anthropic-ratelimit-requests-remaining" if name == "anthropic" else "x-ratelimit-remaining-requests"
    assert headers[remaining] == "0"
    return float(headers["retry-after"])


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_limit_is_the_clients_own_error_with_the_time_to_wait(name: str) -> None:
    async with practised(rpm=1) as (practice, root):
        client = CLIENTS[name](root)
        await asyncio.to_thread(client.ask, "m")
        refused = await error_of(client.ask, "m")
        assert described(refused) == RAISED[name][FAULTS.index("429")]
        wait = _wait_told(name, refused)
        assert wait is None if name == "bedrock" else wait is not None and 0 < wait <= 60
        assert practice.bill.charged == 1


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_stream_is_refused_in_clear_words(name: str) -> None:
    async with practised() as (practice, root):
        refused = await error_of(CLIENTS[name](root).stream)
        assert "Streaming cannot be practised" in str(refused)
        expected = "HTTPValidationError 422" if name == "mistral" else RAISED[name][0]
        assert described(refused) == expected
        assert practice.bill.charged == 0


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_reply_without_figures_is_charged_all_the_same(name: str) -> None:
    """Anthropic's and Mistral's clients refuse such a reply; the others show no figures."""
    async with practised() as (practice, root):
        client = CLIENTS[name](root)
        if name in ("anthropic", "mistral"):
            refused = await error_of(client.ask, "practice-usage-missing")
            assert "validation" in type(refused).__name__.lower() or "usage" in str(refused)
        else:
            assert client.tokens(await asyncio.to_thread(client.ask, "practice-usage-missing")) is None
        assert (practice.bill.charged, practice.bill.total.input_tokens > 0) == (1, True)


async def test_bedrock_counts_tokens_for_nothing() -> None:
    async with practised() as (practice, root):
        client = boto3.client(
            "bedrock-runtime",
            endpoint_url=root,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key="practice-secret",
        )

        def count(**given: Any) -> int:
            return int(client.count_tokens(modelId="m", input=given)["inputTokens"])

        converse = await asyncio.to_thread(count, converse={"messages": PARTS})
        own = await asyncio.to_thread(count, invokeModel={"body": b'{"prompt": "hello"}'})
        used = await asyncio.to_thread(lambda: client.converse(modelId="m", messages=PARTS)["usage"]["inputTokens"])
        assert (converse, own > 0, practice.bill.charged) == (used, True, 1)
