"""A process that writes orders and submits jobs, each pair in one transaction, until it is killed."""

import asyncio
import sys

from tests.transactions.drivers import visiting

STOPS_AT = 3


async def main(driver: str, url: str, stops: str) -> None:
    async with visiting(driver, url) as guest:
        for number in range(1, 1_000_000):
            await guest.begin()
            await guest.execute(f"INSERT INTO orders VALUES ({number})")
            await guest.submit([number, "second"], label=str(number))
            print(f"{number} before", flush=True)
            await wait_if(stops == "before" and number == STOPS_AT)
            await guest.commit()
            print(f"{number} after", flush=True)
            await wait_if(stops == "after" and number == STOPS_AT)


async def wait_if(stop: bool) -> None:
    if stop:
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
