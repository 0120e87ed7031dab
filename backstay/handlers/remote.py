"""The handler `remote`: the work is done by someone else, who is sent a request and answers when it is done."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from backstay.core.breaker import BreakerPolicy
from backstay.core.callbacks import Said, deciding, name_task, outcome_of, read_task
from backstay.core.errors import ErrorCode, Permanent, Throttled, UsageError
from backstay.core.failures import Failure, FailureKind, failure_of_status, one_line, parse_retry_after
from backstay.core.ids import read_item
from backstay.core.outcomes import Failed, Running, Submitted, Succeeded
from backstay.handlers.context import Context
from backstay.handlers.handler import Rules
from backstay.handlers.outgoing import Answer, Outgoing
from backstay.handlers.payload import dump
from backstay.handlers.task import TaskHandler

NAME: Final = "remote"
DEADLINE_SECONDS: Final = 3_600.0
SEND_SECONDS: Final = 30.0
UNSURE_SECONDS: Final = 60.0
FIRST_LOOK_MS: Final = 5_000
NEXT_LOOK_MS: Final = 30_000  # an answer makes its item due at once, so this is for what got lost on the way
HEADERS_MAX: Final = 20
HEADER_LENGTH_MAX: Final = 1_000
_TOKEN: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
# Ours to set, or of one connection; and credentials, because a payload is kept as it is.
_OWN: Final = frozenset(
    {
        *("host", "content-length", "content-type", "transfer-encoding", "connection", "keep-alive", "te", "trailer"),
        *("upgrade", "expect", "idempotency-key", "webhook-id", "webhook-timestamp", "webhook-signature"),
    }
)
_SECRET: Final = frozenset(
    {"authorization", "proxy-authorization", "cookie", "set-cookie", "api-key", "x-api-key", "x-auth-token"}
)
# Many people's workers share this one name: the failures of one say nothing about the others.
NO_BREAKER: Final = BreakerPolicy(window_calls=1_000, calls_min=1_000, window_ms=1)


class Inbox(Protocol):
    """What was said about items, as it came in."""

    async def finals(self, items: Sequence[int]) -> list[Said]: ...

    async def bodies(self, said: Sequence[Said]) -> dict[int, str]: ...


@dataclass(frozen=True, slots=True)
class Links:
    """The ways out and in: how a request is sent and signed, where its answer is to come, and where it then is."""

    outgoing: Outgoing
    inbox: Inbox
    public_url: str | None
    tag: Callable[[int, int], str]  # makes a callback's URL one that nobody else can have made
    sign: Callable[[str, str, str], Mapping[str, str]]  # owner, name of the message, body -> headers

    def callback_url(self, item: int, fence: int) -> str:
        if self.public_url is None:
            raise UsageError("the service does not know its own address", hint="set BACKSTAY_PUBLIC_URL")
        return f"{self.public_url.rstrip('/')}/callbacks/{name_task(item, fence)}/{self.tag(item, fence)}"


class RemoteHandler(TaskHandler):
    """Takes items {"url", "payload", "headers"}; the request's own answer only says that it was taken."""

    def __init__(self, links: Links, name: str = NAME, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        rules = Rules(
            deadline_seconds=deadline_seconds,
            timeout_seconds=SEND_SECONDS + 15,
            item_timeout_seconds=366 * 86_400,  # its deadline ends it
            breaker=NO_BREAKER,
        )
        super().__init__(self, name, name, rules)
        self._links = links
        self.askable = False

    def check(self, payload: Any) -> None:
        _read(payload)
        self._links.outgoing.check(payload["url"])
        self._links.callback_url(0, 0)

    async def submit(self, item: Any) -> str:
        raise TypeError("a remote item is run, not submitted")

    async def cancel(self, task_id: str) -> None:
        """Nobody is told: an answer that comes all the same is kept as late."""

    async def run(self, body: str, context: Context) -> Succeeded | Submitted | Failed:
        try:
            payload = _read(json.loads(body))
        except UsageError as error:
            raise Permanent(error.message, ErrorCode.GW_4XX) from None
        try:
            url = self._links.callback_url(read_item(context.item_id), context.fence)
        except UsageError as error:
            raise Throttled(error.message, UNSURE_SECONDS) from None  # another worker may know better
        if (found := await self._found(context)) is not None:
            return found  # an earlier try was answered; it need not be done twice
        context.guard()
        text = dump(self._request(payload, url, context))
        name = context.idempotency_key
        headers = {**payload.get("headers", {}), "idempotency-key": name, **self._links.sign(context.owner, name, text)}
        seconds = min(SEND_SECONDS, max(context.seconds_left, 0.1))
        answer = await self._links.outgoing.post(payload["url"], text, headers, seconds)
        if not 200 <= answer.status <= 299:
            return Failed(_refusal(answer))
        task = name_task(read_item(context.item_id), context.fence)
        return await self._found(context) or Submitted(task, after_ms=FIRST_LOOK_MS)

    def _request(self, payload: dict[str, Any], url: str, context: Context) -> dict[str, Any]:
        return {
            "item": context.item_id,
            "attempt": context.attempt,
            "callback_url": url,
            "deadline_at": context.deadline_at,
            "payload": payload["payload"],
        }

    async def _found(self, context: Context) -> Succeeded | None:
        found = await self._answers([name_task(read_item(context.item_id), context.fence)])
        answer = next(iter(found.values()), None)
        return answer if isinstance(answer, Succeeded) else None

    async def poll(self, task_ids: Sequence[str]) -> Mapping[str, Succeeded | Failed | Running]:
        return {**dict.fromkeys(task_ids, Running(after_ms=NEXT_LOOK_MS)), **await self._answers(task_ids)}

    async def _answers(self, task_ids: Sequence[str]) -> dict[str, Succeeded | Failed]:
        """What the inbox decides; of very long answers only some at once, and the others at the next look."""
        tasks = {task: read_task(task) for task in task_ids}
        said: dict[int, list[Said]] = {}
        for one in await self._links.inbox.finals([item for item, _ in tasks.values()]):
            said.setdefault(one.item_id, []).append(one)
        decided = {task: deciding(said.get(item, []), fence) for task, (item, fence) in tasks.items()}
        chosen = {task: one for task, one in decided.items() if one is not None}
        bodies = await self._links.inbox.bodies(list(chosen.values()))
        return {task: outcome_of(one.kind, bodies[one.number]) for task, one in chosen.items() if one.number in bodies}


def _refusal(answer: Answer) -> Failure:
    """A refusal is the item's own: one worker's word must not hold up those of others."""
    said = f"the remote worker answered {answer.status}: {one_line(answer.text)}"
    if answer.status < 400:
        return Failure(ErrorCode.GW_4XX, FailureKind.BUSINESS, said, provider_status=answer.status)
    after_ms = parse_retry_after(answer.retry_after, None) if answer.retry_after else None
    failure = failure_of_status(answer.status, said, after_ms)
    return replace(failure, kind=FailureKind.BUSINESS) if failure.kind is FailureKind.HELD else failure


def _read(payload: Any) -> dict[str, Any]:
    """A payload that can be sent, or a UsageError."""
    if not isinstance(payload, dict) or not isinstance(payload.get("url"), str) or "payload" not in payload:
        raise UsageError("a remote item has a url and a payload", hint='{"url": "https://…", "payload": …}')
    if unknown := payload.keys() - {"url", "payload", "headers"}:
        raise UsageError(f"a remote item has no field {min(map(str, unknown))[:40]!r}")
    headers = payload.get("headers", {})
    if not isinstance(headers, dict) or len(headers) > HEADERS_MAX:
        raise UsageError(f"headers must be an object of at most {HEADERS_MAX} texts")
    for name, value in headers.items():
        _check_header(name, value)
    return payload


def _check_header(name: str, value: Any) -> None:
    low = name.lower()
    if not low or len(low) > 100 or not _TOKEN.issuperset(low):
        raise UsageError(f"{name[:40]!r} is no name of a header")
    if low in _OWN:
        raise UsageError(f"the header {low} is not yours to set")
    if low in _SECRET:
        raise UsageError(
            f"the header {low} would be kept in the database", hint="requests are signed: check that instead"
        )
    fits = isinstance(value, str) and len(value) <= HEADER_LENGTH_MAX and value.isascii() and value.isprintable()
    if not fits:
        raise UsageError(f"the header {low} must be a text of printable ASCII")
