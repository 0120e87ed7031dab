"""Private servers for a run: PostgreSQL with its defaults, and a RabbitMQ node of its own."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


class NotHere(Exception):
    """A server that this machine cannot give; the message is the reason to report."""


@contextlib.contextmanager
def private_postgres() -> Iterator[str]:
    """A fresh PostgreSQL with durable commits; gives the URL of an empty database."""
    try:
        from tests.servers.postgres import PrivatePostgres
    except ImportError as error:
        raise NotHere(f"no private PostgreSQL: {error}") from error
    with PrivatePostgres() as server:
        url = server.create_database()
        refuse_unless_durable(url)
        yield url


def refuse_unless_durable(url: str) -> None:
    """Numbers from a server that does not wait for its disk would compare nothing."""
    import psycopg

    with psycopg.connect(url) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            row = connection.execute(f"SHOW {setting}").fetchone()
            if row is None or row[0] != "on":
                raise NotHere(f"the private PostgreSQL runs with {setting} = {row and row[0]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def private_rabbitmq() -> Iterator[str]:
    """A fresh RabbitMQ node of its own; gives its URL."""
    try:
        from tests.servers.rabbitmq import PrivateRabbitMQ, RabbitMQMissing
    except ImportError as error:
        raise NotHere(f"no private RabbitMQ: {error}") from error
    with contextlib.ExitStack() as stack:
        try:
            node = stack.enter_context(PrivateRabbitMQ())
        except (RabbitMQMissing, RuntimeError) as error:
            raise NotHere(" ".join(str(error).split())) from error
        yield node.url
