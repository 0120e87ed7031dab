"""A provider that works on tasks: they are submitted once, polled until they end, and looked up after a crash."""

import asyncio
from collections.abc import Mapping, Sequence

from backstay import Backstay, Context, Limits, TaskAnswer, done, running

backstay = Backstay("sqlite:///tasks.db", limits=Limits(poll_interval_seconds=0.2))


class Renderer:
    """Stands for the provider: it takes a drawing, works on it for three polls, and knows its tasks by reference."""

    def __init__(self) -> None:
        self.polls: dict[str, int] = {}
        self.task_of_ref: dict[str, str] = {}

    def take(self, client_ref: str) -> str:
        task_id = self.task_of_ref.setdefault(client_ref, f"render-{len(self.polls)}")
        self.polls.setdefault(task_id, 0)
        return task_id

    def progress(self, task_id: str) -> int:
        self.polls[task_id] = self.polls.get(task_id, 0) + 1
        return min(self.polls[task_id] * 34, 100)


renderer = Renderer()


@backstay.task("render", retry="timed", deadline=1_200)
class Render:
    async def submit(self, drawing: str, context: Context) -> str:
        context.guard()  # right before a request leaves: nothing is sent under a claim that is too old
        return renderer.take(context.idempotency_key)

    async def poll(self, task_ids: Sequence[str]) -> Mapping[str, TaskAnswer]:
        percent = {task_id: renderer.progress(task_id) for task_id in task_ids}
        return {
            task_id: done(f"{task_id}.png") if now == 100 else running(progress=now) for task_id, now in percent.items()
        }

    async def find(self, client_ref: str) -> str | None:
        """After a crash: did the request arrive? Only a certain no sends it again."""
        return renderer.task_of_ref.get(client_ref)


async def main() -> None:
    async with backstay, backstay.working():
        job = await backstay.submit("render", ["a house", "a tree", "a dog"])
        await job.wait(
            progress=lambda view: print(f"{view.processing} at the provider, {view.done} of {view.total} done")
        )
        async for result in job.results():
            print(result.item, result.state, result.value or result.message)


if __name__ == "__main__":
    asyncio.run(main())
