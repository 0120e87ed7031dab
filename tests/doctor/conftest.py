"""The servers, once for each module, and a healthy ward for each test."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest

from tests.conftest import migrate
from tests.doctor.doctor_rig import Servers, Ward, admitted, provider
from tests.servers.postgres import PrivatePostgres
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.servers.redis import PrivateRedis
from tests.servers.s3 import PrivateS3


@pytest.fixture(scope="module")
def servers(rabbitmq: PrivateRabbitMQ) -> Iterator[Servers]:
    with ExitStack() as stack:
        postgres = stack.enter_context(PrivatePostgres())
        template = postgres.create_database()
        migrate(template)
        yield Servers(
            postgres,
            template.rpartition("/")[2],
            rabbitmq,
            stack.enter_context(PrivateRedis()),
            stack.enter_context(PrivateS3().running()),
            stack.enter_context(provider()),
        )


@pytest.fixture
async def ward(servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Ward]:
    async with AsyncExitStack() as undo:
        yield await admitted(servers, monkeypatch, tmp_path, undo)
