"""A Celery app with items, as its worker processes import it; what they do is told by files in the working folder."""

import asyncio
import os
from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import task_success

from backstay import Backstay, Transient
from backstay.celery import CeleryBridge
from backstay.core.failures import RetryPolicy
from backstay.engine import hints

QUEUE = os.environ.get("SHOP_QUEUE", "backstay")
DELAY_MS = 3_000

if "SHOP_DATABASE_SECONDS" in os.environ:  # whatever is done sooner was done by a message
    hints.DATABASE_SECONDS = float(os.environ["SHOP_DATABASE_SECONDS"])  # type: ignore[misc]

celery = Celery("shop", broker=os.environ.get("SHOP_BROKER_URL"))
celery.conf.update(worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)
backstay = Backstay(os.environ.get("SHOP_DATABASE_URL"))
bridge = CeleryBridge(celery, backstay, queue=QUEUE)


@task_success.connect
def note_message(sender: Any, result: Any, **_: object) -> None:
    """A message of items is done with, as Celery tells it."""
    if sender.name == "backstay.work":
        with Path("messages").open("a") as file:
            file.write(f"{result['run']}\n")


@celery.task(name="shop.greet", queue=QUEUE)
def greet(name: str) -> None:
    """A task of Celery's own, beside the items."""
    note("greeted", name)


@backstay.handler()
async def convert(item: Any) -> Any:
    note("convert", item)
    return item


@backstay.handler(retry=RetryPolicy("later", attempts_max=3, base_ms=DELAY_MS, factor=1, cap_ms=DELAY_MS))
async def flaky(item: Any) -> Any:
    """One in ten fails the first time; if many did, the breaker would open."""
    first = f"flaky {item}" not in told()
    note("flaky", item)
    if first and item % 10 == 0:
        raise Transient("not now")
    return item


@backstay.handler()
async def gated(item: Any) -> Any:
    """Runs until the test opens the gate."""
    note("gated", item)
    while not is_open():  # noqa: ASYNC110 - another process opens it
        await asyncio.sleep(0.02)
    return item


def is_open() -> bool:
    return Path("gate").exists()


def note(*words: object) -> None:
    with Path("told").open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def told() -> list[str]:
    return Path("told").read_text().splitlines() if Path("told").exists() else []
