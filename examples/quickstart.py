"""The tutorial's example: two items through one handler, on a database file in the working folder."""

import asyncio

from backstay import Backstay

backstay = Backstay("sqlite:///quickstart.db")  # or postgresql://user@host/database


@backstay.handler(retry="gateway", timeout=60)
async def summarise(text: str) -> str:
    return text[:20]  # call your slow, flaky, paid service here


async def main() -> None:
    async with backstay, backstay.working(concurrency=10):
        job = await backstay.submit(summarise, ["a long text", "another"])
        await job.wait()
        async for result in job.results():
            print(result.item, result.state, result.value or result.message)


if __name__ == "__main__":
    asyncio.run(main())
