"""With --strict-openai, what OpenAI refuses is refused; without, it is taken."""

import openai
import pytest

from backstay.server.openai import files, survey
from tests.server.openai.openai_rig import CHAT, Desk, line, requests

MIXED = "\n".join([line("one", model="practice"), line("two", model="practice-mini")]).encode()


async def test_a_batch_that_openai_takes_is_taken(strict_desk: Desk) -> None:
    assert (await strict_desk.done(requests(3))).status == "completed"


async def test_mixed_models_fail_the_batch(strict_desk: Desk) -> None:
    failed = await strict_desk.done(MIXED)
    assert failed.errors is not None
    assert failed.errors.data is not None
    [error] = failed.errors.data
    assert (error.code, error.line, error.param) == ("mismatched_model", 2, "body.model")


async def test_a_model_that_is_not_listed_fails_the_batch(strict_desk: Desk) -> None:
    failed = await strict_desk.done(requests(2, model="gpt-7"))
    assert failed.errors is not None
    assert failed.errors.data is not None
    [error] = failed.errors.data
    assert (error.code, error.line, error.param) == ("model_not_found", 1, "body.model")


@pytest.mark.parametrize("window", ["1h", "background", "48h"])
async def test_windows_other_than_a_day_are_refused(strict_desk: Desk, window: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await strict_desk.create(requests(1), completion_window=window)
    assert (refused.value.param, refused.value.code) == ("completion_window", "invalid_value")


@pytest.mark.parametrize(
    ("window", "seconds"),
    [("1h", 3_600), ("2w", 14 * 86_400), ("background", 14 * 86_400), ("4w", 14 * 86_400)],
)
async def test_without_it_any_window_up_to_a_month_is_taken_and_none_outlasts_its_job(
    sqlite_desk: Desk, window: str, seconds: int
) -> None:
    done = await sqlite_desk.done(requests(1), completion_window=window)
    assert (done.status, done.completion_window) == ("completed", window)
    assert done.expires_at == done.created_at + seconds


async def test_too_many_requests_fail_the_batch(strict_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert survey.STRICT_LINES_MAX == 50_000
    monkeypatch.setattr(survey, "STRICT_LINES_MAX", 5)
    failed = await strict_desk.done(requests(6))
    assert failed.errors is not None
    assert failed.errors.data is not None
    assert (failed.errors.data[0].code, failed.errors.data[0].line) == ("too_many_tasks", None)
    assert (await strict_desk.done(requests(5))).status == "completed"


async def test_too_many_bytes_are_refused_while_they_come(strict_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.STRICT_BATCH_BYTES_MAX == 200 << 20
    monkeypatch.setattr(files, "STRICT_BATCH_BYTES_MAX", 1_000)
    with pytest.raises(openai.APIStatusError) as refused:
        await strict_desk.upload(requests(100))
    assert refused.value.status_code == 413


async def test_azures_way_to_name_an_endpoint_is_not_openais(strict_desk: Desk, sqlite_desk: Desk) -> None:
    with pytest.raises(openai.BadRequestError):
        await strict_desk.create(requests(1), endpoint=CHAT.removeprefix("/v1"))
    done = await sqlite_desk.done(requests(1), endpoint=CHAT.removeprefix("/v1"))
    assert done.status == "completed"
