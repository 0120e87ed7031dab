"""Faults of what is around Backstay: PostgreSQL, RabbitMQ, Redis, S3, folders, providers, the clock."""

import os
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
from alembic import command
from alembic.config import Config
from redis import Redis
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from backstay.settings import KEY_FILE, key_beside
from backstay.store.databases import schema
from tests.cli.shell import eventually
from tests.databases import Leaping
from tests.doctor.doctor_rig import Ward
from tests.servers import postgres
from tests.servers.pgbouncer import PrivatePgBouncer
from tests.servers.postgres import free_port

NOBODY = 65_534


# PostgreSQL


async def the_server_is_down(ward: Ward) -> None:
    ward.set(database_url=f"postgresql://postgres@127.0.0.1:{free_port()}/x")


async def the_password_is_wrong(ward: Ward) -> None:
    server = ward.servers.postgres
    rules = server.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{before}")
    ward.undo.callback(rules.write_text, before)
    server.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    ward.undo.callback(server.execute, "DROP ROLE guarded")
    server.execute("SELECT pg_reload_conf()")
    url = urlsplit(ward.url)
    ward.set(database_url=f"postgresql://guarded:canary-password@{url.hostname}:{url.port}{url.path}")


async def it_is_migrated_one_short(ward: Ward) -> None:
    def downgrade(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(files("backstay.store").joinpath("migrations")))
        config.attributes["connection"] = connection
        command.downgrade(config, schema.KNOWN[-2])

    engine = create_async_engine(ward.url.replace("postgresql://", "postgresql+asyncpg://"), poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.run_sync(downgrade)
    await engine.dispose()


async def its_schema_is_newer(ward: Ward) -> None:
    ward.sql("UPDATE alembic_version SET version_num = '9999'")


def _reload(ward: Ward, name: str, value: str) -> None:
    server = ward.servers.postgres
    ward.undo.callback(server.execute, "SELECT pg_reload_conf()")
    ward.undo.callback(server.execute, f"ALTER SYSTEM RESET {name}")
    server.execute(f"ALTER SYSTEM SET {name} = {value}")
    server.execute("SELECT pg_reload_conf()")
    eventually(lambda: server.execute(f"SHOW {name}") == value)


async def it_does_not_sync(ward: Ward) -> None:
    _reload(ward, "fsync", "off")


async def it_writes_half_pages(ward: Ward) -> None:
    _reload(ward, "full_page_writes", "off")


async def it_commits_later(ward: Ward) -> None:
    ward.sql(f'ALTER DATABASE "{ward.url.rpartition("/")[2]}" SET synchronous_commit = off')


async def it_gives_few_connections(ward: Ward) -> None:
    ward.undo.callback(ward.servers.postgres.restart)
    with ward.monkeypatch.context() as patch:
        patch.setitem(postgres.SETTINGS, "max_connections", "30")
        ward.servers.postgres.restart()


async def a_transaction_is_left_open(ward: Ward) -> None:
    ward.set(alarm_transaction_seconds="1")
    connection = await asyncpg.connect(ward.url, server_settings={"application_name": "report"})
    ward.undo.push_async_callback(connection.close)
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await connection.execute("SELECT pg_sleep(1.2)")


async def a_pooler_takes_sessions_apart(ward: Ward) -> None:
    # One of both options is missing: it connects, and its hints are lost.
    ward.set(database_url=_pooled(ward, "prepared_statements=off"))


async def a_pooler_refuses_our_settings(ward: Ward) -> None:
    ward.set(database_url=_pooled(ward, ""))


def _pooled(ward: Ward, options: str) -> str:
    port = urlsplit(ward.url).port
    assert port is not None
    return ward.undo.enter_context(PrivatePgBouncer(port, 5)).url(ward.url, options)


async def the_clock_is_wrong(ward: Ward) -> None:
    leaping = Leaping()
    leaping.ms = 90_000
    ward.clock = leaping


# RabbitMQ


async def the_broker_is_down(ward: Ward) -> None:
    ward.set(broker_url=f"amqp://guest:guest@127.0.0.1:{free_port()}/")


async def the_broker_has_several_nodes_and_classic_queues(ward: Ward) -> None:
    url = ward.servers.rabbitmq.url
    ward.set(broker_url=url.replace("@", f"@127.0.0.1:{free_port()},"))


async def the_broker_refuses_the_password(ward: Ward) -> None:
    ward.set(broker_url=ward.servers.rabbitmq.url.replace(":guest@", ":canary-password@"))


async def the_broker_has_no_such_vhost(ward: Ward) -> None:
    ward.set(broker_url=f"{ward.servers.rabbitmq.url.rstrip('/')}/nowhere")


async def a_queue_has_other_arguments(ward: Ward) -> None:
    channel = await ward.channel()
    await channel.queue_delete(ward.topology.callbacks)
    await channel.queue_declare(ward.topology.callbacks, durable=True, arguments={"x-max-length": 5})


async def the_broker_was_wiped(ward: Ward) -> None:
    ward.set(broker_prefix=ward.servers.rabbitmq.prefix())


async def messages_were_set_aside(ward: Ward) -> None:
    await (await ward.channel()).basic_publish(b"?", exchange=ward.topology.dead, routing_key="")


async def the_dead_queue_is_full(ward: Ward) -> None:
    ward.set(broker_dead_messages="1")
    await messages_were_set_aside(ward)


async def nobody_consumes(ward: Ward) -> None:
    await (await ward.channel()).basic_publish(
        b"{}", exchange=ward.topology.callbacks, routing_key=ward.topology.callbacks
    )


# Redis, files


async def redis_is_down(ward: Ward) -> None:
    ward.undo.callback(ward.servers.redis.restart)
    ward.servers.redis.kill()


async def redis_refuses_the_password(ward: Ward) -> None:
    url = ward.servers.redis.url
    asked = Redis.from_url(url, password="right")  # which counts as soon as one is wanted
    asked.config_set("requirepass", "right")
    ward.undo.callback(asked.close)
    ward.undo.callback(asked.config_set, "requirepass", "")
    ward.set(redis_url=url.replace("redis://", "redis://:canary-password@"))


async def the_bucket_is_missing(ward: Ward) -> None:
    ward.set(data="s3://nobody-made-this-bucket/backstay")


def _folder(ward: Ward) -> Path:
    """Which any user can get to."""
    folder = Path(tempfile.mkdtemp(prefix="backstay-files-", dir="/tmp"))
    ward.undo.callback(shutil.rmtree, folder)
    ward.set(data=folder)
    return folder


async def the_folder_cannot_be_made(ward: Ward) -> None:
    file = ward.folder / "a-file"
    file.touch()
    ward.set(data=file / "data")


async def the_folder_cannot_be_written_to(ward: Ward) -> None:
    folder = _folder(ward)
    folder.chmod(0o550)
    if os.geteuid() == 0:  # who may do everything
        await ward.examined()  # so that all is imported, wherever Python is
        os.chown(folder, 0, NOBODY)
        ward.monkeypatch.chdir(folder)
        ward.monkeypatch.setenv("HOME", str(folder))  # where drivers look for certificates
        ward.undo.callback(os.setegid, os.getegid())
        ward.undo.callback(os.seteuid, 0)
        os.setegid(NOBODY)
        os.seteuid(NOBODY)


async def everyone_can_read_the_folder(ward: Ward) -> None:
    _folder(ward).chmod(0o755)


async def others_can_read_the_key(ward: Ward) -> None:
    folder = _folder(ward)
    key_beside(folder)
    (folder / KEY_FILE).chmod(0o644)


# providers


async def the_provider_is_down(ward: Ward) -> None:
    ward.base_url = f"http://127.0.0.1:{free_port()}/v1"


async def the_provider_refuses_the_key(ward: Ward) -> None:
    ward.monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-password")


async def the_gateway_is_down(ward: Ward) -> None:
    ward.set(gateway_url=f"http://127.0.0.1:{free_port()}/convert")


async def a_provider_is_held(ward: Ward) -> None:
    await (await ward.store()).providers.hold("openai", "the balance is used up")
