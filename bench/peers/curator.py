"""Bespoke Labs' curator: a list of prompts in, a dataset out, its replies kept in a file as it goes."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import os
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.prompts import MODEL, messages

# Tuned, in its favour: its limits per minute far out of reach, no viewer and no telemetry. Its loop is its own.
CONCURRENCY = 100
PER_MINUTE = 1_000_000_000

_at: dict[str, Any] = {"base_url": ""}


def prepare(base_url: str) -> None:
    litellm = find_spec("litellm")
    assert litellm is not None
    assert litellm.origin is not None
    os.environ |= {
        "OPENAI_API_KEY": "bench",
        "TELEMETRY_ENABLED": "false",
        "CURATOR_VIEWER": "0",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": tempfile.mkdtemp(),
        "CURATOR_CACHE_DIR": tempfile.mkdtemp(),
        # A price list and the words of a tokenizer that litellm brings, instead of those from the network.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "TIKTOKEN_CACHE_DIR": str(Path(litellm.origin).parent / "litellm_core_utils" / "tokenizers"),
    }
    _at["base_url"] = base_url


def rate(n: int) -> dict[str, float]:
    from bespokelabs import curator

    limits = {"max_requests_per_minute": PER_MINUTE, "max_tokens_per_minute": PER_MINUTE}
    llm = curator.LLM(
        model_name=MODEL,
        backend="openai",
        backend_params={"base_url": _at["base_url"], "max_concurrent_requests": CONCURRENCY, **limits},
        generation_params={"max_tokens": 16},
    )
    prompts = [messages(number)[0]["content"] for number in range(n)]
    started = time.perf_counter()
    answer = llm(prompts)
    seconds = time.perf_counter() - started
    said = [row["response"] for row in getattr(answer, "dataset", answer)]
    assert len(list(filter(None, said))) == n, f"{len(said)} of {n} answered"
    return {"requests_per_second": n / seconds, "seconds": seconds}
