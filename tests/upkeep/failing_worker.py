"""A worker all of whose items fail, until it is killed: failing_worker.py URL"""

import asyncio
import sys

from backstay import Backstay, Permanent

app = Backstay(sys.argv[1])


@app.handler(delivery="at_most_once")
async def fails(item: str) -> None:
    await asyncio.sleep(0.01)
    raise Permanent("400")


async def main() -> None:
    async with app, app.working(concurrency=10):
        await asyncio.Event().wait()


asyncio.run(main())
