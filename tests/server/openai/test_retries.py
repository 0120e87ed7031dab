"""OpenAI's client as it comes, with its two retries: what it should try again it does, and nothing else."""

from pathlib import Path
from typing import Any

import openai
import pytest

from backstay.clock import Clock
from tests.server.openai.openai_rig import CHAT, Desk, opened, requests

RETRIES = 2
RETRY_COUNT = "x-stainless-retry-count"


async def _tried_again(refused: openai.APIStatusError) -> int:
    return int(refused.response.request.headers[RETRY_COUNT])


async def test_a_conflict_that_will_stay_is_not_tried_again(sqlite_desk: Desk) -> None:
    client = sqlite_desk.client(max_retries=RETRIES)
    done = await sqlite_desk.done(requests(1))
    with pytest.raises(openai.ConflictError, match="Cannot cancel a batch with status 'completed'") as refused:
        await client.batches.cancel(done.id)
    assert await _tried_again(refused.value) == 0
    order: Any = {"input_file_id": done.input_file_id, "endpoint": CHAT, "completion_window": "24h"}
    keyed = {"Idempotency-Key": "once"}
    await client.batches.create(**order, extra_headers=keyed)
    with pytest.raises(openai.ConflictError) as other:
        await client.batches.create(**{**order, "metadata": {"a": "b"}}, extra_headers=keyed)
    assert await _tried_again(other.value) == 0


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"endpoint": "/v1/chats"}, "invalid_value", "endpoint"),
        ({"completion_window": "soon"}, "invalid_value", "completion_window"),
        ({"metadata": {"tags": ["a"]}}, "invalid_type", "metadata.tags"),
        ({"input_file_id": None}, "invalid_type", "input_file_id"),
        ({"input_file_id": openai.omit}, "missing_required_parameter", "input_file_id"),
    ],
)
async def test_a_mistake_is_told_once_and_as_openai_tells_it(
    sqlite_desk: Desk, change: dict[str, Any], code: str, param: str
) -> None:
    client = sqlite_desk.client(max_retries=RETRIES)
    order: Any = {"input_file_id": "file-1", "endpoint": CHAT, "completion_window": "24h", **change}
    with pytest.raises(openai.BadRequestError) as refused:
        await client.batches.create(**order)
    error = refused.value
    assert (error.code, error.param, error.type) == (code, param, "invalid_request_error")
    assert error.request_id is not None
    assert await _tried_again(error) == 0
    assert [batch async for batch in client.batches.list()] == []


class LateInTheMinute(Clock):
    """The wall clock, moved so that a minute has a second and a half left when this is made."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = -super().now_ms() % 60_000 - 1_500

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead


@pytest.mark.slow
async def test_who_asks_too_often_waits_as_told_and_is_answered(sqlite_file_url: str, tmp_path: Path) -> None:
    settings = {"rate_limit_per_minute": 3}
    async with opened(sqlite_file_url, tmp_path / "data", settings=settings) as desk:
        clock = LateInTheMinute()
        desk.rig.service.rate_limit._clock = clock
        begun = clock.now_ms()
        patient, hasty = desk.client(max_retries=RETRIES), desk.client()
        for _ in range(3):
            await hasty.batches.list()
        with pytest.raises(openai.RateLimitError) as refused:
            await hasty.batches.list()
        assert 0 < int(refused.value.response.headers["retry-after"]) <= 2
        answer = await patient.batches.with_raw_response.list()
        assert answer.http_request.headers[RETRY_COUNT] == "1", "one wait was enough, as long as it was told"
        assert clock.now_ms() // 60_000 > begun // 60_000
