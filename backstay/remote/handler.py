"""The handler `remote`: a remote worker gets a request and answers when the work is done. And requests over HTTP."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from backstay.clock import Clock
from backstay.core.breaker import BreakerPolicy
from backstay.core.callbacks import StoredCallback, deciding_callback, name_task, outcome_of, read_task
from backstay.core.errors import ErrorCode, Permanent, Throttled, UsageError
from backstay.core.failures import Failure, FailureKind, failure_of_status, one_line, parse_retry_after
from backstay.core.ids import job_of, read_item
from backstay.core.models import Failed, Running, Submitted, Succeeded
from backstay.core.signing import Signer, webhook_headers
from backstay.handlers.function import TaskHandler, dump
from backstay.handlers.handler import NO_LIMITS, CallLimits, Context, Rules
from backstay.handlers.outgoing import Outgoing, PostReply
from backstay.store.inbox import InboxMessages

PURPOSE: Final = "callback"


def secrets_of(signer: Signer, owner: str) -> list[str]:
    """The secrets that sign an owner's requests to remote workers, in the form of Standard Webhooks."""
    return signer.secrets_of(f"remote\0{owner}", 1)


class CallbackTags:
    """Makes and checks tags. A tag covers the item, the try and the job's random seed: an id may belong to another job
    one day, as in a database that was restored, and a seed never does."""

    def __init__(self, signer: Signer, inbox: InboxMessages, clock: Clock) -> None:
        self._signer = signer
        self._inbox = inbox
        self._clock = clock

    def tag(self, context: Context) -> str:
        return self._signer.tag(PURPOSE, context.item_id, context.fence, context.job_seed)

    async def open(self, item: str, fence: str, tag: str) -> tuple[int, int] | None:
        """The item and the try that a tag was made for, all as they are written; None if it was made for others."""
        try:
            item_id = read_item(item)
        except UsageError:
            return None
        job = await self._inbox.sender(job_of(item_id))
        if job is None or not tag.isascii():
            return None
        fits = self._signer.fits(tag, PURPOSE, item, fence, job.seed)
        fits_as_before = job.old_tags and self._signer.fits(tag, PURPOSE, item, fence)
        return (item_id, int(fence)) if fits or fits_as_before else None

    def sign(self, owner: str, name: str, body: str) -> Mapping[str, str]:
        return webhook_headers(secrets_of(self._signer, owner), name, self._clock.now_ms(), body)


NAME: Final = "remote"
DEADLINE_SECONDS: Final = 3_600.0
SEND_SECONDS: Final = 30.0
UNSURE_SECONDS: Final = 60.0
FIRST_LOOK_MS: Final = 5_000
NEXT_LOOK_MS: Final = 30_000  # an answer makes its item due at once; this is for answers that got lost
# Many remote workers share this name: the failures of one say nothing about the others.
NO_BREAKER: Final = BreakerPolicy(window_calls=1_000, calls_min=1_000, window_ms=1)
# The ways, by the field that only their items have.
HTTP: Final = "url"
MESSAGES: Final = "exchange"
_MISSING: Final = {
    HTTP: "this process cannot send remote work over HTTP",
    MESSAGES: "this process cannot send remote work: it has no broker",
}
_HINTS: Final = {HTTP: "set BACKSTAY_PUBLIC_URL", MESSAGES: "set BACKSTAY_BROKER_URL, or give --broker"}


class Inbox(Protocol):
    """The stored callbacks of items."""

    async def finals(self, items: Sequence[int]) -> list[StoredCallback]: ...

    async def bodies(self, said: Sequence[StoredCallback]) -> dict[int, str]: ...


class Way(Protocol):
    """A way out: how a request is sent, and where its answer is to come."""

    def read(self, payload: dict[str, Any]) -> None:
        """Raises UsageError if the item does not fit this transport."""
        ...

    def check(self, payload: dict[str, Any]) -> None:
        """Raises UsageError for a place that requests must not be sent to."""
        ...

    def require(self) -> None:
        """Raises UsageError while something is missing here that another worker may have."""
        ...

    async def send(self, payload: dict[str, Any], context: Context, seconds: float) -> Failed | None:
        """Sends once; None: it was accepted. Raises errors of a handler: nothing was sent, or it is not known."""
        ...


class RemoteHandler(TaskHandler):
    """Takes items {"url", "payload", "headers"} and {"exchange", "routing_key", "payload", "headers"}.

    Sending only shows that a request was accepted. The answer is found in the inbox, whichever way it came.
    """

    def __init__(
        self,
        ways: Mapping[str, Way],
        inbox: Inbox,
        name: str = NAME,
        deadline_seconds: float = DEADLINE_SECONDS,
        calls: CallLimits = NO_LIMITS,
    ) -> None:
        rules = Rules(
            deadline_seconds=deadline_seconds,
            timeout_seconds=SEND_SECONDS + 15,
            item_timeout_seconds=366 * 86_400,  # its deadline ends it
            breaker=NO_BREAKER,
            calls=calls,
        )
        super().__init__(self, name, name, rules)
        self._ways = ways
        self._inbox = inbox
        self.askable = False

    def check(self, payload: Any) -> None:
        way = self._way(_way_of(payload))
        way.read(payload)
        way.check(payload)
        way.require()

    def _way(self, field: str) -> Way:
        way = self._ways.get(field)
        if way is None:
            raise UsageError(_MISSING[field], hint=_HINTS[field])
        return way

    async def submit(self, item: Any) -> str:
        raise TypeError("a remote item cannot be submitted")

    async def cancel(self, task_id: str) -> None:
        """The remote worker gets no message: if it still answers, the answer is kept as late."""

    async def run(self, body: str, context: Context) -> Succeeded | Submitted | Failed:
        payload = json.loads(body)
        try:
            field = _way_of(payload)
        except UsageError as error:
            raise Permanent(error.message, ErrorCode.GW_4XX) from None
        try:
            way = self._way(field)
            way.require()
        except UsageError as error:
            raise Throttled(error.message, UNSURE_SECONDS) from None  # another worker may be able to
        try:
            way.read(payload)
        except UsageError as error:
            raise Permanent(error.message, ErrorCode.GW_4XX) from None
        if (found := await self._find_answer(context)) is not None:
            return found  # an earlier try was answered, so it is not sent again
        context.guard()
        refused = await way.send(payload, context, min(SEND_SECONDS, max(context.seconds_left, 0.1)))
        if refused is not None:
            return refused
        task = name_task(read_item(context.item_id), context.fence)
        return await self._find_answer(context) or Submitted(task, after_ms=FIRST_LOOK_MS)

    def trace_attributes(self, body: str) -> dict[str, str | int]:
        """For a trace: where it goes, and nothing of a URL but its host."""
        payload = json.loads(body)
        if isinstance(payload, dict) and isinstance(payload.get(MESSAGES), str):
            place = {"messaging.destination.name": payload[MESSAGES]}
            key = {"messaging.rabbitmq.destination.routing_key": str(payload.get("routing_key", ""))}
            return {"messaging.system": "rabbitmq", "messaging.operation.type": "send", **place, **key}
        url = payload.get(HTTP) if isinstance(payload, dict) else None
        try:
            host = urlsplit(url).hostname if isinstance(url, str) else None
        except ValueError:
            host = None
        return {"http.request.method": "POST", "server.address": host or ""}

    async def _find_answer(self, context: Context) -> Succeeded | None:
        found = await self._answers([name_task(read_item(context.item_id), context.fence)])
        answer = next(iter(found.values()), None)
        return answer if isinstance(answer, Succeeded) else None

    async def poll(self, task_ids: Sequence[str]) -> Mapping[str, Succeeded | Failed | Running]:
        return {**dict.fromkeys(task_ids, Running(after_ms=NEXT_LOOK_MS)), **await self._answers(task_ids)}

    async def _answers(self, task_ids: Sequence[str]) -> dict[str, Succeeded | Failed]:
        """The outcomes that the inbox decides. Very long answers are read a few at a time, the rest later."""
        tasks = {task: read_task(task) for task in task_ids}
        said: dict[int, list[StoredCallback]] = {}
        for one in await self._inbox.finals([item for item, _ in tasks.values()]):
            said.setdefault(one.item_id, []).append(one)
        decided = {task: deciding_callback(said.get(item, []), fence) for task, (item, fence) in tasks.items()}
        chosen = {task: one for task, one in decided.items() if one is not None}
        bodies = await self._inbox.bodies(list(chosen.values()))
        return {task: outcome_of(one.kind, bodies[one.number]) for task, one in chosen.items() if one.number in bodies}


def _way_of(payload: Any) -> str:
    """The transport of an item; an item must have exactly one."""
    named = [field for field in (HTTP, MESSAGES) if isinstance(payload, dict) and isinstance(payload.get(field), str)]
    if len(named) != 1:
        hint = '{"url": "https://…", "payload": …}, or {"exchange": …, "routing_key": …, "payload": …}'
        raise UsageError("a remote item must have a url or an exchange, and a payload", hint=hint)
    return named[0]


HEADERS_MAX: Final = 20
HEADER_LENGTH_MAX: Final = 1_000
_NAME_LENGTH_MAX: Final = 100
_TOKEN: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
# Payloads are stored as they are, so no header may hold credentials: none whose name has one of these words, or ends
# in token or key.
_SECRET_WORDS: Final = frozenset(
    {
        "authorization",
        "auth",
        "cookie",
        "cookie2",
        "apikey",
        "secret",
        "password",
        "passwd",
        "pwd",
        "credential",
        "credentials",
        "jwt",
    }
)
_PLAIN_KEYS: Final = frozenset(
    {
        "partition",
        "routing",
        "cache",
        "idempotency",
        "correlation",
        "message",
        "sort",
        "shard",
        "surrogate",
        "dedup",
        "deduplication",
        "ordering",
        "group",
        "object",
        "public",
    }
)
TRACEPARENT: Final = "traceparent"
SIGNATURE: Final = frozenset({"webhook-id", "webhook-timestamp", "webhook-signature"})


def check_headers(headers: Any, own: frozenset[str]) -> None:
    """Raises a UsageError for headers that cannot be sent; only Backstay may set those in `own`."""
    if not isinstance(headers, dict) or len(headers) > HEADERS_MAX:
        raise UsageError(f"headers must be an object of at most {HEADERS_MAX} texts")
    for name, value in headers.items():
        _check_header(name, value, own)


def is_credential(name: str) -> bool:
    """Whether a header of this name, in lower case, is one that people send secrets in. New ones appear all the time,
    so words decide: x-goog-api-key, private-token, x-amz-security-token and the like."""
    words = name.replace("_", "-").replace(".", "-").split("-")
    is_key = words[-1] == "key" and not _PLAIN_KEYS.intersection(words[-2:-1])
    return is_key or words[-1] == "token" or not _SECRET_WORDS.isdisjoint(words)


def trace_headers(context: Context) -> dict[str, str]:
    """The W3C header by which a remote worker's spans become part of the item's trace."""
    return {} if context.traceparent is None else {TRACEPARENT: context.traceparent}


def _check_header(name: str, value: Any, own: frozenset[str]) -> None:
    low = name.lower()
    if not low or len(low) > _NAME_LENGTH_MAX or not _TOKEN.issuperset(low):
        raise UsageError(f"{name[:40]!r} is not a valid header name")
    if low in own:
        raise UsageError(f"the header {low} cannot be set: Backstay sets it")
    if is_credential(low):
        raise UsageError(
            f"the header {low} is not allowed: its value would be stored in the database",
            hint="check the signature of the requests instead",
        )
    fits = isinstance(value, str) and len(value) <= HEADER_LENGTH_MAX and value.isascii() and value.isprintable()
    if not fits:
        raise UsageError(f"the header {low} must be a text of printable ASCII")


# Ours to set, or of one connection.
_OWN: Final = SIGNATURE | {
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "idempotency-key",
}


@dataclass(frozen=True, slots=True)
class OverHttp:
    """The reply to a request only says that it was accepted. The result is posted to a URL of this service."""

    outgoing: Outgoing
    public_url: str | None
    tag: Callable[[Context], str]  # signs the URL of a callback
    sign: Callable[[str, str, str], Mapping[str, str]]  # owner, name of the message, body -> headers

    def read(self, payload: dict[str, Any]) -> None:
        if not isinstance(payload.get("url"), str) or "payload" not in payload:
            raise UsageError("a remote item must have a url and a payload", hint='{"url": "https://…", "payload": …}')
        if unknown := payload.keys() - {"url", "payload", "headers"}:
            raise UsageError(f"a remote item has no field {min(map(str, unknown))[:40]!r}")
        check_headers(payload.get("headers", {}), _OWN)

    def check(self, payload: dict[str, Any]) -> None:
        self.outgoing.check(payload["url"])

    def require(self) -> None:
        if self.public_url is None:
            raise UsageError("the service does not know its public URL", hint="set BACKSTAY_PUBLIC_URL")

    def callback_url(self, context: Context) -> str:
        task = name_task(read_item(context.item_id), context.fence)
        return f"{(self.public_url or '').rstrip('/')}/callbacks/{task}/{self.tag(context)}"

    async def send(self, payload: dict[str, Any], context: Context, seconds: float) -> Failed | None:
        text, name = dump(self._request(payload, context)), context.idempotency_key
        own = {"idempotency-key": name, **trace_headers(context), **self.sign(context.owner, name, text)}
        headers = {**payload.get("headers", {}), **own}
        answer = await self.outgoing.post(payload["url"], text, headers, seconds)
        return None if 200 <= answer.status <= 299 else Failed(_refusal(answer))

    def _request(self, payload: dict[str, Any], context: Context) -> dict[str, Any]:
        return {
            "item": context.item_id,
            "attempt": context.attempt,
            "callback_url": self.callback_url(context),
            "deadline_at": context.deadline_at,
            "payload": payload["payload"],
        }


def _refusal(answer: PostReply) -> Failure:
    """A refusal fails only the item: one remote worker must not hold those of others."""
    said = f"the remote worker answered {answer.status}: {one_line(answer.text)}"
    if answer.status < 400:
        return Failure(ErrorCode.GW_4XX, FailureKind.BUSINESS, said, provider_status=answer.status)
    after_ms = parse_retry_after(answer.retry_after, None) if answer.retry_after else None
    failure = failure_of_status(answer.status, said, after_ms)
    return replace(failure, kind=FailureKind.BUSINESS) if failure.kind is FailureKind.HELD else failure
