"""An item that kills every worker that runs it, in real processes."""

from pathlib import Path

import pytest

from tests.stories.stage import Stage, until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("bomb", "position"), [("bomb", 5), ("bomb before the call", 0)])
async def test_an_item_that_kills_its_worker_fails_alone_after_a_bounded_number_of_deaths(
    sqlite_file_url: str, tmp_path: Path, bomb: str, position: int
) -> None:
    async with Stage(sqlite_file_url, tmp_path) as stage:
        items = [bomb if n == position else n for n in range(60)]
        job = await stage.backstay.submit("explosive", items)
        deaths = 0
        while not (await job.show()).ended:
            worker = stage.worker(concurrency=10, STORY_RESCUES_MAX="1")

            async def over(worker=worker) -> bool:
                return worker.poll() is not None or (await job.show()).ended

            await until(over, "the worker died or the job ended")
            deaths += worker.poll() is not None
            assert deaths <= 2, "the first call, and one rescue"
        view = await job.show()
        assert (view.succeeded, view.failed) == (59, 1)
        (failed,) = [result async for result in job.results() if result.state == "failed"]
        assert (failed.position, failed.error_code) == (position, "UNKNOWN")
        assert deaths == 2
