"""Faults of the machine, of the settings and of the work in the database."""

import hashlib
import resource
import subprocess
import sys

from backstay.cli.doctor import machine
from backstay.clock import new_incarnation, own_namespace
from backstay.store.items import Want
from backstay.store.store import Store
from backstay.store.submissions import Chunk, NewJob
from tests.doctor.doctor_rig import Ward

LEASE_MS = 90_000
HOUR_MS = 3_600_000


# the machine and the settings


async def a_variable_is_misspelt(ward: Ward) -> None:
    ward.set(redis_ulr="redis://127.0.0.1:1/0")


async def the_settings_file_is_broken(ward: Ward) -> None:
    (ward.folder / "backstay.toml").write_text("profile = \n")


async def a_setting_is_out_of_range(ward: Ward) -> None:
    ward.set(file_days="-1")


async def an_extra_is_missing(ward: Ward) -> None:
    ward.monkeypatch.setitem(sys.modules, "aio_pika", None)


async def a_library_is_too_old(ward: Ward) -> None:
    old = ward.folder / "asyncpg-0.1.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: asyncpg\nVersion: 0.1\n")
    ward.monkeypatch.syspath_prepend(ward.folder)


async def few_files_may_be_open(ward: Ward) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    ward.undo.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
    resource.setrlimit(resource.RLIMIT_NOFILE, (250, before[1]))


async def the_disk_is_full(ward: Ward) -> None:
    # No test may fill a disk, so the bar is where no disk reaches.
    ward.monkeypatch.setattr(machine, "FAIL_BYTES", 1 << 60)


async def there_is_no_common_key(ward: Ward) -> None:
    ward.set(secret_key=None)


# work


async def _submitted(store: Store, last: bool = True) -> int:
    job = NewJob("echo", "local", new_incarnation(), HOUR_MS)
    return (await store.submissions.open(job, Chunk(0, ["1", "2"], hashlib.sha256(b"12").hexdigest(), last))).id


async def _greeted(store: Store, pid: int) -> str:
    worker = new_incarnation()
    await store.workers.register(worker, "here", pid, own_namespace(), '{"echo": "echo"}')
    return worker


def _ended_process() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
        return process.pid


async def nobody_runs_the_handler(ward: Ward) -> None:
    await _submitted(await ward.store())


async def a_worker_died_with_its_leases(ward: Ward) -> None:
    store = await ward.store()
    await _submitted(store)
    worker = await _greeted(store, _ended_process())
    await store.items.claim([Want("echo", 10, LEASE_MS)], f"{worker}:1", LEASE_MS)


async def items_are_stuck(ward: Ward) -> None:
    store = await ward.store()
    await _submitted(store)
    worker = await _greeted(store, 1)
    await store.items.claim([Want("echo", 10, 0)], f"{worker}:1", LEASE_MS)
    ward.sql("UPDATE items SET lease_expires_at = 1, reconcile_after = 1")


async def a_submit_broke_off(ward: Ward) -> None:
    store = await ward.store()
    await _greeted(store, 1)
    await _submitted(store, last=False)
    ward.sql(f"UPDATE jobs SET created_at = created_at - {HOUR_MS}")


async def hints_do_not_leave(ward: Ward) -> None:
    store = await ward.store()
    await _greeted(store, 1)
    await store.outbox.open_sink()
    channel = await ward.channel()
    queue = ward.topology.work_queue("echo")
    await channel.queue_declare(queue.name, durable=True, arguments=dict(queue.arguments))
    await _submitted(store)
    ward.sql("UPDATE outbox SET created_at = created_at - 120000, due_at = due_at - 120000")


async def no_broker_is_named_where_hints_are_written(ward: Ward) -> None:
    await (await ward.store()).outbox.open_sink()
    ward.set(broker_url=None)
