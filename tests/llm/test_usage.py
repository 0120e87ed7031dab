"""What replies say they used, as each provider writes it: never booked below what the reply says, whatever it holds."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.models import Succeeded, Usage
from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.prices import MICROS_MAX, LanePrices
from backstay.llm.provider import TOKENS_MAX
from backstay.llm.providers.openai.replies import PARTS_MAX, STATED_MICROS_MAX, usage_of
from tests.llm.reply_rig import CHAT, MODEL, priced, read

# A micro-dollar for a token in, five for a token out, a tenth for a cached one.
GIVEN = LanePrices(Endpoint("http://127.0.0.1:9000/v1", price=(1_000_000, 5_000_000, 100_000)))
ANTHROPIC, XAI = "https://api.anthropic.com/v1", "https://api.x.ai/v1"
GEMINI, OPENROUTER = "https://generativelanguage.googleapis.com/v1beta", "https://openrouter.ai/api/v1"
OPENAI = "https://api.openai.com/v1"


def usage(used: Any, **more: Any) -> Usage:
    return usage_of({"model": "any", "usage": used, **more}, GIVEN)


OPENAI_CHAT = {
    "prompt_tokens": 1_000,
    "completion_tokens": 200,
    "total_tokens": 1_200,
    "prompt_tokens_details": {"cached_tokens": 400, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 150,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
OPENAI_RESPONSES = {
    "input_tokens": 1_000,
    "input_tokens_details": {"cached_tokens": 400},
    "output_tokens": 200,
    "output_tokens_details": {"reasoning_tokens": 150},
    "total_tokens": 1_200,
}
XAI_CHAT = {
    "prompt_tokens": 500,
    "completion_tokens": 200,
    "total_tokens": 1_700,
    "prompt_tokens_details": {"text_tokens": 500, "audio_tokens": 0, "image_tokens": 0, "cached_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 1_000, "audio_tokens": 0},
    "num_sources_used": 0,
}
MESSAGES = {
    "input_tokens": 500,
    "cache_creation_input_tokens": 1_000,
    "cache_read_input_tokens": 4_000,
    "cache_creation": {"ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 600},
    "output_tokens": 200,
    "output_tokens_details": {"thinking_tokens": 50},
    "server_tool_use": None,
    "service_tier": "standard",
}
GEMINI_NATIVE = {
    "promptTokenCount": 1_000,
    "cachedContentTokenCount": 400,
    "candidatesTokenCount": 200,
    "thoughtsTokenCount": 900,
    "toolUsePromptTokenCount": 100,
    "totalTokenCount": 2_200,
}
DEEPSEEK = {
    "prompt_tokens": 1_000,
    "completion_tokens": 200,
    "total_tokens": 1_200,
    "prompt_tokens_details": {"cached_tokens": 400},
    "completion_tokens_details": {"reasoning_tokens": 150},
    "prompt_cache_hit_tokens": 400,
    "prompt_cache_miss_tokens": 600,
}
GROQ = {
    "queue_time": 0.01,
    "prompt_tokens": 1_000,
    "prompt_time": 0.002,
    "completion_tokens": 200,
    "completion_time": 0.2,
    "total_tokens": 1_200,
    "total_time": 0.21,
}
OPENROUTER_CHAT = {
    "prompt_tokens": 1_000,
    "completion_tokens": 200,
    "total_tokens": 1_200,
    "cost": 0.0033789,
    "is_byok": False,
    "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0, "audio_tokens": 0, "video_tokens": 0},
    "cost_details": {"upstream_inference_cost": 0.0033789},
    "completion_tokens_details": {"reasoning_tokens": 0, "image_tokens": 0, "audio_tokens": 0},
}
PERPLEXITY = {
    "prompt_tokens": 100,
    "completion_tokens": 200,
    "total_tokens": 300,
    "citation_tokens": 1_000,
    "reasoning_tokens": 50,
    "num_search_queries": 2,
    "cost": {"input_tokens_cost": 0.001, "output_tokens_cost": 0.002, "request_cost": 0.005, "total_cost": 0.008},
}


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        pytest.param(OPENAI_CHAT, Usage(1_000, 200, 1_640), id="openai chat"),
        pytest.param(OPENAI_RESPONSES, Usage(1_000, 200, 1_640), id="openai responses"),
        pytest.param(XAI_CHAT, Usage(500, 1_200, 6_500), id="xai: thoughts beside the answer"),
        pytest.param({**XAI_CHAT, "cost_in_usd_ticks": 75_000_001}, Usage(500, 1_200, 7_501), id="xai: its own bill"),
        pytest.param(MESSAGES, Usage(5_500, 200, 2_900), id="anthropic: caches beside the input"),
        pytest.param(DEEPSEEK, Usage(1_000, 200, 1_640), id="deepseek"),
        pytest.param(GROQ, Usage(1_000, 200, 2_000), id="groq"),
        pytest.param({**OPENAI_CHAT, "total_tokens": 1_900}, Usage(1_000, 900, 5_140), id="gemini as openai"),
        pytest.param(OPENROUTER_CHAT, Usage(1_000, 200, 3_379), id="openrouter: its own bill"),
        pytest.param(PERPLEXITY, Usage(100, 1_250, 8_000), id="perplexity: its own bill"),
        pytest.param({**PERPLEXITY, "cost": None}, Usage(100, 1_250, 6_350), id="perplexity: citations"),
        pytest.param({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}, Usage(9, 2, 19), id="mistral"),
        pytest.param({"inputTokens": 5, "outputTokens": 2, "totalTokens": 7}, Usage(5, 2, 15), id="bedrock"),
        pytest.param(
            {
                "billed_units": {"input_tokens": 5, "output_tokens": 2},
                "tokens": {"input_tokens": 71, "output_tokens": 2},
            },
            Usage(71, 2, 81),
            id="cohere: the dearer of its two counts",
        ),
    ],
)
def test_each_provider_is_read_as_it_bills(used: dict[str, Any], expected: Usage) -> None:
    assert usage(used) == expected


def test_gemini_bills_thoughts_as_output_and_tools_as_input() -> None:
    body = {"modelVersion": "gemini-2.5-flash", "usageMetadata": GEMINI_NATIVE}
    assert usage_of(body, GIVEN) == Usage(1_100, 1_100, 6_240)
    blocked = {"modelVersion": "gemini-2.5-flash", "usageMetadata": {"promptTokenCount": 7, "totalTokenCount": 7}}
    assert usage_of(blocked, GIVEN) == Usage(7, 0, 7)  # it leaves zeros out


def test_a_gateway_whose_sums_say_that_caches_are_inside_is_believed() -> None:
    inside = {"prompt_tokens": 5_500, "completion_tokens": 200, "total_tokens": 5_700}
    caches = {"cache_read_input_tokens": 4_000, "cache_creation_input_tokens": 1_000}
    assert usage({**inside, **caches}) == Usage(5_500, 200, 2_900)
    assert usage({**inside, **caches, "total_tokens": None}) == Usage(10_500, 200, 7_900)  # else the dearer reading


def test_of_two_counts_of_cached_tokens_the_lower_is_believed() -> None:
    assert usage({**DEEPSEEK, "prompt_cache_hit_tokens": 100}) == Usage(1_000, 200, 1_910)


def test_what_the_list_makes_of_absurd_figures_is_not_booked() -> None:
    absurd = {**MESSAGES, "server_tool_use": {"web_search_requests": 10**12}}
    prices = LanePrices(Endpoint(ANTHROPIC))
    # as if all that is kept were kept for five minutes
    assert usage_of({"model": "claude-sonnet-4-5", "usage": absurd}, prices) == Usage(5_500, 200, 9_450)


def test_thoughts_are_a_part_of_the_answer_only_if_the_sum_says_so() -> None:
    parts = {"prompt_tokens": 10, "completion_tokens": 20, "completion_tokens_details": {"reasoning_tokens": 5}}
    assert usage({**parts, "total_tokens": 30}) == Usage(10, 20, 110)
    assert usage(parts) == Usage(10, 25, 135)
    assert usage({**parts, "total_tokens": 35}) == Usage(10, 25, 135)
    more = {"completion_tokens_details": {"reasoning_tokens": 50}}
    assert usage({**parts, **more, "total_tokens": 30}) == Usage(10, 70, 360)  # it cannot be inside


@pytest.mark.parametrize(
    ("used", "cost"),
    [
        ({"is_byok": True, "cost": 0.00095, "cost_details": {"upstream_inference_cost": 0.019}}, 19_950),
        ({"cost": 0.95, "cost_details": {"upstream_inference_cost": 19}}, 19_950_000),
        ({"is_byok": False, "cost": 0.002, "cost_details": {"upstream_inference_cost": 0.003}}, 3_000),
        ({"cost": 0.002, "cost_details": {"upstream_inference_cost": None}}, 2_000),
        ({"cost": 1.96e-06}, 20),
        ({"cost": 0}, 20),
        ({"cost": "0.5"}, 500_000),
        ({"estimated_cost": 0.0004}, 400),
        ({"cost_in_usd_ticks": "37756000"}, 3_776),
    ],
)
def test_what_the_provider_says_it_charges_is_booked_unless_the_tokens_cost_more(
    used: dict[str, Any], cost: int
) -> None:
    assert usage({"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, **used}) == Usage(10, 2, cost)


def test_a_stated_cost_counts_where_no_price_is_known() -> None:
    unpriced = {"model": "mine", "usage": {"prompt_tokens": 10, "completion_tokens": 2, "cost": 0.001}}
    assert usage_of(unpriced, priced) == Usage(10, 2, 1_000)
    assert usage_of({"usage": {"cost": 0.001}}, priced) == Usage(0, 0, 1_000)


ODD: tuple[Any, ...] = (-1, -0.5, math.nan, math.inf, True, "1e400", "-1", "$1", [], {}, 10**30, 10**5_000, 20_000)


@pytest.mark.parametrize("cost", ODD, ids=map("odd cost {}".format, range(len(ODD))))
def test_a_stated_cost_that_cannot_be_true_is_passed_over(cost: Any) -> None:
    for name in ("cost", "estimated_cost", "cost_in_usd_ticks"):
        stated = 10**30 if name == "cost_in_usd_ticks" and cost == 20_000 else cost
        assert usage({"prompt_tokens": 10, "completion_tokens": 2, name: stated}) == Usage(10, 2, 20)


@pytest.mark.parametrize(
    ("base_url", "model", "used", "cost"),
    [
        # 500 × 3 + 400 × 3.75 + 600 × 6 + 4000 × 0.3 + 200 × 15
        pytest.param(ANTHROPIC, "claude-sonnet-4-5", MESSAGES, 10_800, id="anthropic: kept for an hour"),
        # the same, and three searches at ten dollars a thousand
        pytest.param(
            ANTHROPIC,
            "claude-sonnet-4-5",
            {**MESSAGES, "server_tool_use": {"web_search_requests": 3}},
            40_800,
            id="anthropic: searches",
        ),
        pytest.param(XAI, "grok-4", XAI_CHAT, 19_500, id="xai"),  # 500 × 3 + 1200 × 15
        # 600 × 0.15 + 400 × 0.075 + 200 × 0.6
        pytest.param(
            OPENROUTER, "openai/gpt-4o-mini", {**OPENAI_CHAT, "cost": 0.0001}, 240, id="openrouter: dearer than it says"
        ),
    ],
)
def test_published_prices_count_what_is_not_paid_by_the_token_too(
    base_url: str, model: str, used: dict[str, Any], cost: int
) -> None:
    assert usage_of({"model": model, "usage": used}, LanePrices(Endpoint(base_url))).cost_micros == cost


def test_sound_is_paid_at_its_own_price_and_batches_at_half() -> None:
    heard = {"promptTokenCount": 1_000, "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 1_000}]}
    body = {"modelVersion": "gemini-2.5-flash", "usageMetadata": {**heard, "totalTokenCount": 1_000}}
    call, batch = (usage_of(body, LanePrices(Endpoint(GEMINI, lane))).cost_micros for lane in (Lane.CALL, Lane.BATCH))
    assert (call, batch) == (1_000, 500)  # text would be 300
    assert usage_of({"model": "grok-4", "usage": XAI_CHAT}, LanePrices(Endpoint(XAI, Lane.BATCH))).cost_micros == 9_750


def test_a_price_that_is_given_counts_for_models_with_a_published_one_too() -> None:
    given = LanePrices(Endpoint(ANTHROPIC, price=(1_000_000, 5_000_000, 100_000)))
    assert usage_of({"model": "claude-sonnet-4-5", "usage": MESSAGES}, given) == Usage(5_500, 200, 2_900)


def test_the_usual_reply_costs_the_same_whether_or_not_the_list_looks_at_it() -> None:
    prices = LanePrices(Endpoint(OPENAI))
    usual = usage_of({"model": MODEL, "usage": OPENAI_CHAT}, prices)
    assert usual == usage_of({"model": MODEL, "usage": {**OPENAI_CHAT, "odd": 1}}, prices) == Usage(1_000, 200, 240)


def test_the_list_is_not_asked_about_the_usual_reply() -> None:
    class Silent(LanePrices):
        def usage_by_list(self, *_: Any) -> Any:
            raise AssertionError("the usual reply is not shown to the list")

    silent = Silent(Endpoint(OPENAI))
    for used in (OPENAI_CHAT, OPENAI_RESPONSES, {"prompt_tokens": 1, "completion_tokens": 2}):
        assert usage_of({"model": MODEL, "usage": used}, silent).cost_micros
    sound = {"prompt_tokens_details": {"cached_tokens": 400, "audio_tokens": 3}}
    spoken = {"completion_tokens_details": {"reasoning_tokens": 150, "audio_tokens": 3}}
    for used in (XAI_CHAT, {**OPENAI_CHAT, **sound}, {**OPENAI_CHAT, **spoken}):
        with pytest.raises(AssertionError, match="not shown"):
            usage_of({"model": MODEL, "usage": used}, silent)


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}, Usage(10, 20, 14)),
        ({"input_tokens": 10, "output_tokens": 20, "input_tokens_details": {"cached_tokens": 10}}, Usage(10, 20, 13)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage(0, 0, 0)),
        ({"prompt_tokens": 10, "completion_tokens": 20, "prompt_tokens_details": None}, Usage(10, 20, 14)),
        ({"prompt_tokens": 10, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 99}}, None),
        ({"prompt_tokens": 10, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": -1}}, None),
        ({"prompt_tokens": 10, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": "x"}}, None),
        ({"prompt_tokens": 10, "completion_tokens": 20, "prompt_tokens_details": [1]}, None),
        ({"prompt_tokens": "10", "completion_tokens": 20}, None),
        ({"prompt_tokens": 9.5, "completion_tokens": 20.0}, None),
    ],
)
def test_usage_is_read_however_its_numbers_are_written(used: dict[str, Any], expected: Usage | None) -> None:
    assert usage_of({"model": MODEL, "usage": used}, priced) == (expected or Usage(10, 20, 14))


@pytest.mark.parametrize("used", [{"prompt_tokens": 10, "total_tokens": 10}, {"total_tokens": 10}])
def test_embeddings_have_no_output_to_pay_for(used: dict[str, Any]) -> None:
    body = {"model": MODEL, "data": [{"embedding": [0.5]}], "usage": used}
    assert usage_of(body, priced) == Usage(10, 0, 2)


@pytest.mark.parametrize(
    "used",
    [
        None,
        [],
        "10",
        {},
        {"prompt_tokens": -1, "completion_tokens": 1},
        {"prompt_tokens": 1, "completion_tokens": None},
        {"prompt_tokens": 1, "total_tokens": 1},
        {"prompt_tokens": True, "completion_tokens": 1},
        {"prompt_tokens": "1e3", "completion_tokens": 1},
        {"prompt_tokens": "9" * 5_000, "completion_tokens": 1},
        {"prompt_tokens": math.inf, "completion_tokens": 1},
        {"prompt_tokens": 10**11, "completion_tokens": 1},
        {"prompt_tokens": 1, "completion_tokens": 10**30},
        {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 10**30},
        {"input_tokens": 1, "output_tokens": 1, "cache_read_input_tokens": 10**30},
        {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": {"cache_write_tokens": 10**30}},
        {"input_tokens": 5},
        {"output_tokens": 5},
        {"total_tokens": 5},
    ],
)
def test_usage_that_is_missing_or_makes_no_sense_has_no_cost(used: Any) -> None:
    assert usage_of({"model": MODEL, "usage": used}, priced) == Usage()
    assert usage_of({"model": MODEL, "usage": used}, LanePrices(Endpoint(OPENAI))) == Usage()


def test_a_usage_object_of_any_size_is_read_and_not_shown_to_the_list() -> None:
    plain = {"prompt_tokens": 10, "completion_tokens": 20}
    large: list[dict[str, Any]] = [
        {f"part-{n}": n for n in range(100_000)},
        {"promptTokensDetails": [{"modality": "X"}] * 100_000},
    ]
    for more in large:
        text = json.dumps({"model": MODEL, "usage": {**plain, **more}})
        outcome = read(text)
        assert isinstance(outcome, Succeeded)
        assert outcome.usage == Usage(10, 20, 14)
        assert usage_of(json.loads(text), _Proud(Endpoint(OPENAI))) == Usage(10, 20, 14)
    assert len(large[0]) > PARTS_MAX


class _Proud(LanePrices):
    def usage_by_list(self, *_: Any) -> Any:
        raise AssertionError("it was shown to the list")


def test_what_was_done_in_a_dear_tier_is_paid_at_its_price() -> None:
    cheap, dear = (usage_of({**CHAT, "service_tier": tier}, priced).cost_micros for tier in ("default", "priority"))
    assert (cheap, dear) == (180, 360)


def test_an_unknown_price_is_no_cost_and_not_a_cost_of_nothing() -> None:
    assert usage_of({**CHAT, "model": "mine"}, priced) == Usage(1_000, 100, None)
    assert read(json.dumps({**CHAT, "model": "mine"})).usage == Usage(1_000, 100, None)
    assert read(json.dumps({**CHAT, "model": 4})).usage == Usage(1_000, 100, None)


NAMES = st.sampled_from(
    sorted({*OPENAI_CHAT, *OPENAI_RESPONSES, *MESSAGES, *GEMINI_NATIVE, *DEEPSEEK, *OPENROUTER_CHAT, *PERPLEXITY})
)
NUMBERS = st.integers() | st.integers(0, 2_000) | st.floats() | st.text(max_size=5) | st.none() | st.booleans()
USED = st.dictionaries(NAMES, NUMBERS | st.lists(NUMBERS) | st.dictionaries(NAMES, NUMBERS), max_size=8)


@given(USED, st.sampled_from([GIVEN, LanePrices(Endpoint(ANTHROPIC)), LanePrices(Endpoint(GEMINI))]))
def test_whatever_a_usage_object_holds_the_figures_are_such_that_a_database_can_add_them_up(
    used: dict[str, Any], prices: LanePrices
) -> None:
    for model, place in (("claude-sonnet-4-5", "usage"), ("gemini-2.5-flash", "usageMetadata")):
        found = usage_of({"model": model, place: used}, prices)
        assert 0 <= found.input_tokens <= TOKENS_MAX
        assert 0 <= found.output_tokens <= TOKENS_MAX
        assert found.cost_micros is None or 0 <= found.cost_micros <= min(
            MICROS_MAX, 5 * TOKENS_MAX + STATED_MICROS_MAX
        )


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_no_part_that_a_reply_names_is_left_out_of_its_cost(read_: int, written: int, thought: int, more: int) -> None:
    details = {"completion_tokens_details": {"reasoning_tokens": thought}}
    total = read_ + written + more
    found = usage({"prompt_tokens": read_, "completion_tokens": written, "total_tokens": total, **details})
    assert found.cost_micros is not None
    assert found.cost_micros >= read_ + 5 * (written + more)
    assert found.output_tokens >= max(written + more, thought)
