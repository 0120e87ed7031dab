"""Services that speak OpenAI's API with few differences.

Such a service is one entry in `PRESETS`. One with files, batches or addresses of its own has its own module.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final
from urllib.parse import SplitResult

from yarl import URL

from backstay.llm.provider import (
    BatchApi,
    CallLookup,
    Certainty,
    Channel,
    LlmProvider,
    ProviderAccess,
    ReplyForm,
    TaskApi,
)
from backstay.llm.providers.openai import replies, requests
from backstay.llm.providers.openai.batches import OpenAiBatches
from backstay.llm.providers.openai.requests import OpenAiAnswers
from backstay.llm.schemas import OPENAI_DIALECT, SchemaMode
from backstay.llm.shards import BATCH_REQUESTS_MAX, ShardBounds

MODELS: Final = "/v1/models"


class PresetRequests:
    """OpenAI's requests below the path that a service has them at.

    People write a base URL with that path, without it, or with its beginning: all of these mean the same.
    """

    def __init__(self, root: str) -> None:
        self._root = root

    check_base = staticmethod(requests.check_base)
    auth_headers = staticmethod(requests.auth_headers)
    only_path = staticmethod(requests.only_path)
    check_body = staticmethod(requests.check_body)
    is_body = staticmethod(requests.is_body)
    sends_metadata = staticmethod(requests.sends_metadata)
    url_of_body = staticmethod(requests.url_of_body)
    url_of_prompt = staticmethod(requests.url_of_prompt)
    prompt_member = staticmethod(requests.prompt_member)
    model_members = staticmethod(requests.model_members)
    with_model = staticmethod(requests.with_model)
    estimate = staticmethod(requests.estimate)
    trace_attributes = staticmethod(requests.trace_attributes)
    question = staticmethod(requests.question)

    def address(self, base: SplitResult, path: str) -> URL:
        given = base.path.rstrip("/")
        whole = self._root if f"{self._root}/".startswith(f"{given}/") else given
        return requests.address(base._replace(path=whole), path)


def preset(
    name: str,
    base_url: str,
    *,
    base_url_env: str | None = None,
    key_env: str | None = None,
    needs_key: bool = True,
    is_gateway: bool = False,
    root: str = "/v1",
    requests: PresetRequests | None = None,
    replies: ReplyForm = replies,
    call_lookup: Callable[[Channel], CallLookup] | None = None,
    tasks: Callable[[Channel], TaskApi] | None = None,
    batches: Callable[[Channel], BatchApi[Any]] | None = None,
    model_prefixes: tuple[str, ...] = (),
    price_list: str | None = None,
    schemas: SchemaMode = SchemaMode.JSON_SCHEMA,
) -> LlmProvider:
    """A provider that speaks OpenAI's API. Arguments that are left out have usual values; its variables begin with its
    name."""
    access = ProviderAccess(
        base_url,
        base_url_env or f"{name.upper()}_BASE_URL",
        key_env or f"{name.upper()}_API_KEY",
        MODELS,
        needs_key=needs_key,
    )
    form = requests or PresetRequests(root)
    return LlmProvider(
        name,
        access,
        form,
        replies,
        call_lookup=call_lookup,
        tasks=tasks,
        batches=batches,
        answers=OpenAiAnswers(replace(OPENAI_DIALECT, provider=name), schemas),
        is_gateway=is_gateway,
        model_prefixes=model_prefixes,
        price_list=price_list,
    )


class GroqBatches(OpenAiBatches):
    """Its list may show the newest batches only, so a batch that is not in it may exist nevertheless."""

    bounds = ShardBounds(BATCH_REQUESTS_MAX, bytes_max=50 << 20)  # Groq accepts 50,000 requests and 100 MB
    certainty = Certainty.IF_FOUND


PRESETS: Final = (
    preset("cerebras", "https://api.cerebras.ai/v1", price_list="cerebras"),
    preset(
        "deepseek",
        "https://api.deepseek.com/v1",
        # Other services host models whose names begin with deepseek-, so only its own count.
        model_prefixes=("deepseek-chat", "deepseek-reasoner"),
        price_list="deepseek",
        schemas=SchemaMode.JSON_OBJECT,
    ),
    preset(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        root="/inference/v1",
        model_prefixes=("accounts/fireworks/",),  # the names of its models are paths
        price_list="fireworks",
    ),
    preset(
        "groq",
        "https://api.groq.com/openai/v1",
        root="/openai/v1",
        batches=GroqBatches,
        price_list="groq",
        schemas=SchemaMode.JSON_OBJECT,  # only some of its models take schemas
    ),
    # A proxy on this machine, to the models of many makers, at the prices of those.
    preset("litellm", "http://localhost:4000/v1", needs_key=False, is_gateway=True, price_list="openai"),
    # On this machine. Names of its models often have a colon (`llama3:8b`).
    preset("ollama", "http://localhost:11434/v1", needs_key=False, is_gateway=True),
    preset("openrouter", "https://openrouter.ai/api/v1", is_gateway=True, root="/api/v1", price_list="openrouter"),
    # On this machine, without a key unless it was started with one.
    preset("vllm", "http://localhost:8000/v1", needs_key=False, is_gateway=True),
    preset("xai", "https://api.x.ai/v1", model_prefixes=("grok-",), price_list="x-ai"),
)
