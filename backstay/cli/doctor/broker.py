"""RabbitMQ: whether it answers, and whether what is on it is as it would be declared now."""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from backstay.cli.command import again
from backstay.cli.doctor.finding import Finding, Setup, fail, ok, warn
from backstay.core.errors import BrokerUnreachable

if TYPE_CHECKING:
    from backstay.messaging.inspection import Found
    from backstay.messaging.topology import Topology

_ELSEWHERE = "set BACKSTAY_BROKER_QUEUES or BACKSTAY_BROKER_PREFIX"


async def broker(setup: Setup) -> AsyncIterator[Finding]:
    """Whether the broker answers, its exchanges and queues are as they should be, and somebody consumes them."""
    from importlib.util import find_spec

    url = setup.settings.broker_url
    if url is None:
        if setup.client is not None and await setup.store.outbox.is_open():
            advice = f"set BACKSTAY_BROKER_URL, or if you use no broker any more: {again('broker off')}"
            yield warn("no broker URL is set here, but this database writes hints for a broker", advice)
        else:
            yield ok("no broker is set: workers poll the database")
        return
    if find_spec("aio_pika") is None:
        return  # the extras say so
    from backstay.messaging.connection import connected, show_url
    from backstay.messaging.dispatch import topology_of
    from backstay.messaging.inspection import inspect

    topology = topology_of(setup.settings)
    names = {handler.name for handler in setup.app.handlers}
    if setup.client is not None:
        names |= {waiting.handler for waiting in await setup.store.views.backlog()}
    try:
        async with connected(url, "backstay doctor") as connection:
            found = await inspect(connection, topology, sorted(names))
    except BrokerUnreachable as error:
        yield fail(error.message, error.hint)
        return
    yield ok(f"{show_url(url)} answers")
    for finding in _judged(found, topology):
        yield finding


def _judged(found: "list[Found]", topology: "Topology") -> Iterator[Finding]:
    from backstay.messaging.inspection import BrokerFault

    missing = [one for one in found if one.fault is BrokerFault.MISSING]
    if len(missing) == len(found):
        says = (
            f"nothing is declared under {topology.prefix}: no worker has used this broker yet, or its data was deleted"
        )
        yield warn(says, f"start a worker, or: {again('broker declare')}")
        return
    for one in missing:
        yield warn(f"the {one.kind} {one.name} is missing", f"start a worker, or: {again('broker declare')}")
    for one in found:
        if one.fault is BrokerFault.UNUSABLE:
            says = f"{one.name} holds {one.messages:,} messages that no worker could process"
            yield warn(says, f"replay them: {again('broker replay')}")
        elif one.fault is BrokerFault.UNCONSUMED:
            says = f"{one.messages:,} messages wait in {one.name}, and no worker consumes them"
            yield fail(says, "start a worker with this broker and an application that has the handler")
        elif one.fault is BrokerFault.DIFFERENT:
            says = f"the {one.kind} {one.name} was declared differently: {one.problem}"
            yield fail(says, f"delete the {one.kind}, it is declared again; or {_ELSEWHERE}")
    if not any(one.fault for one in found):
        yield ok(f"{len(found)} exchanges and queues are as they should be")
