"""A Celery app whose workers execute items of Backstay, beside their own tasks.

    celery -A celery_app worker -Q celery,backstay     # in this folder, with RabbitMQ or Redis as Celery's broker
    python celery_app.py                               # queues three items and waits for them

SHOP_BROKER and SHOP_DATABASE say where both are.
"""

import asyncio
import os

from celery import Celery

from backstay import Backstay
from backstay.celery import CeleryBridge

celery = Celery("shop", broker=os.environ.get("SHOP_BROKER", "amqp://guest:guest@localhost:5672//"))
backstay = Backstay(os.environ.get("SHOP_DATABASE", "sqlite:///shop.db"))
bridge = CeleryBridge(celery, backstay)  # takes messages from the queue `backstay`


@celery.task
def greet(name: str) -> str:
    """Celery's own tasks go on as before."""
    return f"Hello {name}"


@backstay.handler(retry="gateway", timeout=60)
async def summarise(text: str) -> str:
    return text[:20]  # call your slow, flaky, paid service here


async def main() -> None:
    async with backstay:
        job = await backstay.submit(summarise, ["a long text", "another", "a third"])
        await job.wait()
        async for result in job.results():
            print(result.item, result.state, result.value or result.message)


if __name__ == "__main__":
    asyncio.run(main())
