"""Remote items that go out as a message each, to an exchange of a broker that their submitter named."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from backstay.core.callbacks import VERSION, name_task
from backstay.core.errors import ErrorCode, Permanent, UsageError
from backstay.core.ids import read_item
from backstay.core.outcomes import Failed
from backstay.handlers.context import Context
from backstay.handlers.payload import dump
from backstay.remote.headers import SIGNATURE, check_headers, traced

NAME_BYTES_MAX: Final = 255  # of an exchange or a routing key, as AMQP counts
REQUEST_BYTES_MAX: Final = 16_000_000  # RabbitMQ 4 takes no message above 16 MiB, and closes the channel that sent it
# Ours to set; those that a broker writes; and those that would make it send copies elsewhere.
_OWN: Final = SIGNATURE | {
    *("cc", "bcc", "x-death", "x-delay", "x-delivery-count", "x-backstay-reason", "x-expires", "x-message-ttl"),
    *(f"x-{which}-death-{what}" for which in ("first", "last") for what in ("exchange", "queue", "reason")),
}


class RequestSender(Protocol):
    """Publishes a request. It returns when the broker has it in a queue, and raises what a handler may raise: nothing
    was sent, it never can be, or nobody knows."""

    async def publish(self, request: "MessageRequest", seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class MessageRequest:
    exchange: str
    routing_key: str
    name: str  # the same for every try, so that a repeat can be recognised
    body: bytes
    headers: Mapping[str, str]
    priority: int


@dataclass(frozen=True, slots=True)
class OverMessages:
    """That the broker has a request in a queue is its answer; what came out is a message to an exchange of ours."""

    requests: RequestSender
    callback: Mapping[str, str]  # the exchange and the routing key that answers come in at
    prefix: str  # of exchanges that are ours
    exchanges: frozenset[str]  # the only ones that may be named; empty: all but our own
    tag: Callable[[Context], str]
    sign: Callable[[str, str, str], Mapping[str, str]]

    def read(self, payload: dict[str, Any]) -> None:
        if "payload" not in payload:
            hint = '{"exchange": "grading", "routing_key": "essays", "payload": …}'
            raise UsageError("a remote item must have an exchange, a routing_key and a payload", hint=hint)
        if unknown := payload.keys() - {"exchange", "routing_key", "payload", "headers"}:
            raise UsageError(f"a remote item has no field {min(map(str, unknown))[:40]!r}")
        for field in ("exchange", "routing_key"):
            _check_name(field, payload.get(field, ""))
        check_headers(payload.get("headers", {}), _OWN)

    def check(self, payload: dict[str, Any]) -> None:
        name = payload["exchange"]
        if not name:
            raise UsageError(
                "exchange must not be empty", hint="use the exchange that your workers' queues are bound to"
            )
        if name.startswith(f"{self.prefix}."):
            raise UsageError(f"the exchange {name[:60]!r} belongs to Backstay", hint="use an exchange of your workers")
        if self.exchanges and name not in self.exchanges:
            raise UsageError(
                f"requests may not be sent to the exchange {name[:60]!r}",
                hint="an operator can allow it with BACKSTAY_REMOTE_EXCHANGES",
            )

    def require(self) -> None:
        """All that it needs was there when it was made."""

    async def send(self, payload: dict[str, Any], context: Context, seconds: float) -> Failed | None:
        try:
            self.check(payload)
        except UsageError as error:
            raise Permanent(error.message, ErrorCode.FORBIDDEN) from None
        text, name = dump(self._request(payload, context)), context.idempotency_key
        body = text.encode()
        if len(body) > REQUEST_BYTES_MAX:
            raise Permanent(f"the request has more than {REQUEST_BYTES_MAX:,} bytes", ErrorCode.TOO_LARGE)
        headers = {**payload.get("headers", {}), **traced(context), **self.sign(context.owner, name, text)}
        place = (payload["exchange"], payload.get("routing_key", ""))
        await self.requests.publish(MessageRequest(*place, name, body, headers, context.priority), seconds)
        return None

    def _request(self, payload: dict[str, Any], context: Context) -> dict[str, Any]:
        return {
            "v": VERSION,
            "id": context.idempotency_key,
            "task": name_task(read_item(context.item_id), context.fence),
            "tag": self.tag(context),
            "attempt": context.attempt,
            "callback": dict(self.callback),
            "deadline_at": context.deadline_at,
            "payload": payload["payload"],
        }


def _check_name(field: str, value: Any) -> None:
    if not isinstance(value, str) or not (value.isprintable() and len(value.encode()) <= NAME_BYTES_MAX):
        raise UsageError(f"{field} must be a text of at most {NAME_BYTES_MAX} bytes")
