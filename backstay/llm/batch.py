"""The lane `batch`: requests go into the provider's own batches, at its batch price, and come back within a day."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from backstay.clock import Clock, Tasks
from backstay.core.errors import ErrorCode, OutcomeUnknown, Permanent, Throttled, Transient, UsageError
from backstay.core.failures import Failure, FailureKind, RetryPolicy
from backstay.core.limits import Limits
from backstay.core.models import CannotAsk, Failed, NeverArrived, Running, Submitted, Succeeded
from backstay.handlers.function import TaskAnswer
from backstay.handlers.handler import Context, Rules
from backstay.llm.batch_results import BatchResults, BatchTracker
from backstay.llm.endpoint import Endpoint
from backstay.llm.http.wire import Wire
from backstay.llm.lane_handler import TaskLane, ask_each, rules_for, seconds_of
from backstay.llm.lines import LlmRequest
from backstay.llm.provider import BatchApi, BatchView, Certainty, StagedShard
from backstay.llm.rate_limits import WaitingLimits
from backstay.llm.shards import (
    GATHER_SECONDS,
    QUIET_SECONDS,
    ByteLimit,
    Gatherer,
    SentBatch,
    Shard,
    ShardBounds,
    ShardEntry,
    ShardKey,
    SmallShards,
    drop_late,
    too_late,
)

UPLOADS_AT_ONCE: Final = 4
BATCHES_REMEMBERED_MAX: Final = 10_000
PATIENCE: Final = 6  # how many times longer a shard may gather, if the provider has a minimum size
TOO_LONG_SHARE: Final = 0.9  # of the time that a creation may take


class BatchCancels:
    """Cancels each batch once, and knows which were cancelled here."""

    def __init__(self, api: BatchApi[Any]) -> None:
        self._api = api
        self._cancelled: set[str] = set()

    async def cancel(self, batch_id: str) -> None:
        if batch_id in self._cancelled:
            return
        remember(self._cancelled, batch_id)
        try:
            await self._api.cancel(batch_id)
        except BaseException:
            self._cancelled.discard(batch_id)
            raise

    def __contains__(self, batch_id: str) -> bool:
        return batch_id in self._cancelled


class BatchCreation:
    """Makes a batch of a shard. A failure before the batch is created costs nothing and leaves nothing behind that
    counts.

    The claims behind a shard must be young enough when its batch is created: a request that could arrive after others
    have asked about it, and found nothing, would be paid twice. Others ask only some time after the end of the run's
    own time. So the creation begins only while every run has enough time left for it. That leaves time for large
    uploads, and is never later than the moment at which a run that sends at its send guard may still be under way.
    """

    def __init__(
        self,
        api: BatchApi[Any],
        cancels: BatchCancels,
        limits: tuple[ByteLimit, WaitingLimits],
        small: SmallShards,
        clock: Clock,
        create_seconds: float,
    ) -> None:
        self._api = api
        self._small = small
        self._cancels = cancels
        self._byte_limit, self._waiting = limits
        self._clock = clock
        self._create_seconds = create_seconds
        self._slots = asyncio.Semaphore(UPLOADS_AT_ONCE)

    async def send(self, shard: Shard) -> SentBatch | Failed:
        """The batch, or the outcome of every request of the shard if no batch exists."""
        async with self._slots:
            drop_late(shard, 2 * self._create_seconds)
            if not shard.entries or shard.broken or shard.is_stopped():
                raise too_late()
            if (small := await self._small.judge(shard)) is not None:
                return small
            staged = await self._stage(shard)
        if isinstance(staged, Failed):
            return staged
        if (broken := await staged.wait_ready(self._create_seconds)) is not None:
            return broken
        return await self._create(shard, staged)

    async def _stage(self, shard: Shard) -> StagedShard | Failed:
        seconds = shard.seconds_left - self._create_seconds
        ends_at = self._clock.monotonic() + seconds
        try:
            staged = await self._api.stage(shard, max(int(seconds), 1))
        except OutcomeUnknown as error:
            if self._clock.monotonic() >= ends_at - 2:
                self._byte_limit.too_many_bytes(shard.bytes)
            raise Transient(f"the upload of {shard.bytes} bytes was interrupted: {error}") from None
        if not isinstance(staged, Failed):
            self._byte_limit.bytes_fit(shard.bytes)
        else:
            self._require_fit(shard, staged)
        return staged

    def _require_fit(self, shard: Shard, refused: Failed) -> None:
        """If a shard is too large and can be made smaller, its requests are sent again in smaller ones."""
        if refused.failure.code is ErrorCode.TOO_LARGE and len(shard.entries) > 1:
            self._byte_limit.too_many_bytes(shard.bytes)
            raise Throttled(f"the provider refused {shard.bytes} bytes for one batch; the next one is smaller")

    async def _create(self, shard: Shard, staged: StagedShard) -> SentBatch | Failed:
        if shard.broken or shard.is_stopped() or shard.seconds_left < self._create_seconds:
            raise too_late()  # nothing is awaited between this and the request
        began = self._clock.monotonic()
        try:
            batch_id = await staged.create(self._create_seconds)
        except OutcomeUnknown:
            # Some providers get the requests only now: a shard that takes too long must become smaller.
            if self._clock.monotonic() - began >= self._create_seconds * TOO_LONG_SHARE:
                self._byte_limit.too_many_bytes(shard.bytes)
            raise
        if isinstance(batch_id, Failed):
            self._require_fit(shard, batch_id)
            return self._refused(shard, batch_id)
        self._waiting.see(shard.key.model, batch_id, len(shard.entries))
        if shard.is_stopped():  # nothing is left that would poll it, so it must not run and cost money
            await self._cancels.cancel(batch_id)
        return SentBatch(batch_id, len(shard.entries))

    def _refused(self, shard: Shard, refused: Failed) -> Failed:
        """A provider that is busy and does not tell for how long may have too many tokens of the model already."""
        failure = refused.failure
        if failure.kind is not FailureKind.THROTTLED or failure.retry_after_ms is not None:
            return refused
        seconds = self._waiting.refuse(shard.key.model, None, len(shard.entries))
        return replace(refused, failure=replace(failure, retry_after_ms=int(seconds * 1000)))


def remember(batches: set[str], batch_id: str) -> None:
    if len(batches) >= BATCHES_REMEMBERED_MAX:
        batches.clear()
    batches.add(batch_id)


RUN_SECONDS: Final = 240.0  # to gather, upload and create; a lost request is asked about soon after
CREATE_SECONDS_MAX: Final = 60.0
LOOKS_AT_ONCE: Final = 10
ANSWERS_AT_ONCE: Final = 50
ASKS_AT_ONCE: Final = 500  # one look at the list of batches answers for all of them
# Without randomness: requests that failed together come back together, and form one batch again.
RETRY: Final = RetryPolicy("batch", attempts_max=5, base_ms=2_000, factor=4, cap_ms=600_000)
RULES: Final = Rules(retry=RETRY, timeout_seconds=RUN_SECONDS)
LINE_BYTES: Final = 160  # what surrounds a body in its line, at most
POLLS_PER_SECOND: Final = 500  # of single requests: each poll of one is stored
POLL_MS_MAX: Final = 600_000
LIVES_SECONDS: Final = Limits().llm_item_timeout_seconds  # of a request, at most


class BatchHandler(TaskLane):
    """A request is a task of the provider, named by its batch and its own reference."""

    asks_at_once = ASKS_AT_ONCE

    def __init__(
        self,
        endpoint: Endpoint,
        wire: Wire,
        rules: Rules | None = None,
        *,
        bounds: ShardBounds | None = None,
        clock: Clock | None = None,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        rules = rules or rules_for(endpoint, RULES)
        seconds = min(seconds_of(rules), RUN_SECONDS)
        super().__init__(endpoint, wire, replace(rules, timeout_seconds=seconds), clock)
        self._api = self._open_api()
        self.askable = self._api.certainty is not Certainty.NEVER
        self._lives_seconds = rules.item_timeout_seconds or LIVES_SECONDS
        tasks = Tasks()
        self._tracker = BatchTracker(self._api, self.clock, tasks)
        bounds = bounds or self._api.bounds
        self._byte_limit = ByteLimit(bounds)
        self._waiting = WaitingLimits(self.clock, bounds.requests_min)
        self.answers.room = self._waiting.room
        self._cancels = BatchCancels(self._api)
        create_seconds = min(CREATE_SECONDS_MAX, seconds / 4)
        limits = (self._byte_limit, self._waiting)
        patience = 1 if bounds.requests_min == 1 else PATIENCE
        quiet_seconds = min(quiet_seconds * patience, seconds / 8)
        gather_seconds = min(GATHER_SECONDS * patience, seconds / 4)
        small = SmallShards(self.clock, gather_seconds)
        creation = BatchCreation(self._api, self._cancels, limits, small, self.clock, create_seconds)
        self._gatherer = Gatherer(creation.send, self.clock, tasks, quiet_seconds, gather_seconds)
        self._models: dict[str, str | None] = {}  # of batches made here: failed batches often do not name their model

    def _open_api(self) -> BatchApi[Any]:
        if self.llm.batches is None:
            raise UsageError(f"{self.llm.name} has no batches", hint="use --lane call")
        return self.llm.batches(self.channel)

    async def close(self) -> None:
        """Ends the work of this process; the batches at the provider continue."""
        await self._gatherer.close()
        await self._api.close()
        await self._tracker.close()

    async def run(self, body: str, context: Context) -> Succeeded | Submitted | Failed:
        request = await self.request_to_send(body, context)
        fields = _fields(request)
        model, path = self._api.group_of(request, fields)
        if (seconds := self._waiting.seconds_to_wait(model)) > 0:
            raise Throttled(f"the tokens of {model} that wait in batches have reached the provider's limit", seconds)
        bounds = self._byte_limit.bounds
        bounds = replace(bounds, requests_max=self._waiting.requests_max(model, bounds.requests_max))
        ref = context.idempotency_key
        entry = self._entry(ref, request, fields, context, bounds)
        key = ShardKey(context.item_id.partition("-")[0], model, path)
        with self._waiting.gathering(model):  # nothing is awaited since the question for how long to wait
            batch = await self._gatherer.join(key, entry, bounds)
        if isinstance(batch, Failed):
            return batch
        if len(self._models) >= BATCHES_REMEMBERED_MAX:
            self._models.clear()
        self._models[batch.batch_id] = model
        return Submitted(f"{batch.batch_id}/{ref}", self.account, _after_ms(batch.requests))

    def _entry(
        self, ref: str, request: LlmRequest, fields: dict[str, Any], context: Context, bounds: ShardBounds
    ) -> ShardEntry:
        body = request.body
        if "\n" in body or "\r" in body:  # only between values, where a space means the same
            body = body.replace("\n", " ").replace("\r", " ")
        try:
            size = len(body) if body.isascii() else len(body.encode())
        except UnicodeEncodeError:
            raise Permanent("the body of the request is not UTF-8", ErrorCode.GW_4XX) from None
        tokens = 0
        if bounds.tokens_max is not None:
            tokens = self.llm.requests.estimate(request.url, body, fields).input_tokens
        return ShardEntry(ref, body, size + len(request.url) + LINE_BYTES, tokens, context)

    async def ask(self, client_ref: str, since_ms: int = 0) -> Succeeded | Submitted | NeverArrived | CannotAsk:
        """`since_ms`: the earliest time at which the request can have been sent; 0: unknown."""
        since_ms = since_ms or self.clock.now_ms() - int(self._lives_seconds * 1000)
        batch_id = await self._api.find(client_ref, since_ms)
        if batch_id is not None:
            return Submitted(f"{batch_id}/{client_ref}", self.account)
        return NeverArrived() if self._api.certainty is Certainty.CERTAIN else CannotAsk()

    async def poll(self, task_ids: Sequence[str]) -> Mapping[str, TaskAnswer]:
        """Asks about each batch once. Requests without an answer now are left out; it raises only if there was no
        answer at all."""
        asked: dict[str, list[str]] = {}
        for task_id in task_ids:
            asked.setdefault(task_id.rpartition("/")[0], []).append(task_id)
        answers: dict[str, TaskAnswer] = {}

        async def look(batch_id: str) -> None:
            await self._answer(batch_id, asked[batch_id], answers)

        troubles = await ask_each(asked, look, LOOKS_AT_ONCE, self.poll_seconds)
        if troubles and not answers:
            raise troubles[0]
        return answers

    async def cancel(self, task_id: str) -> None:
        """A batch has the requests of one job only: if one of them is cancelled, all are."""
        await self._cancels.cancel(task_id.rpartition("/")[0])

    async def _answer(self, batch_id: str, task_ids: Sequence[str], answers: dict[str, TaskAnswer]) -> None:
        found = await self._tracker.look(batch_id)
        if isinstance(found, BatchResults):
            wait_ms = self._wait_ms(found, len(task_ids))
            for count, task_id in enumerate(task_ids):
                said = found.answer(task_id.rpartition("/")[2], wait_ms, batch_id in self._cancels)
                answers[task_id] = self.judge_answer(said)
                if count % ANSWERS_AT_ONCE == 0:
                    await self.clock.sleep(0)  # reading an answer takes time that others need too
            return
        answer: TaskAnswer
        if found is None:
            message = f"the provider no longer knows {batch_id}: its outcome is unknown, and it was probably paid for"
            answer = Failed(Failure(ErrorCode.UNKNOWN, FailureKind.UNKNOWN, message), task_ended=True)
        else:
            if not found.ended:
                self._waiting.see(self._model(found), found.id, found.total, found.running)
            answer = Running(found.percent, 0 if found.ended else _after_ms(self._tracker.requests_under_way))
        answers.update(dict.fromkeys(task_ids, answer))

    def _wait_ms(self, results: BatchResults, asked: int) -> int:
        """Records the end of the batch. If it had to wait for others, the milliseconds until it may come again."""
        batch = results.batch
        if not results.too_many_tokens:
            self._waiting.end(self._model(batch), batch.id, batch.total > 0)
            return 0
        return int(self._waiting.refuse(self._model(batch), batch.id, max(asked, batch.total)) * 1000)

    def _model(self, batch: BatchView) -> str | None:
        return self._models.get(batch.id, batch.model)


def _fields(request: LlmRequest) -> dict[str, Any]:
    try:
        fields = json.loads(request.body)
    except (ValueError, RecursionError):
        raise Permanent("the body of the request is not JSON", ErrorCode.GW_4XX) from None
    if not isinstance(fields, dict):
        raise Permanent("the body of the request is not a JSON object", ErrorCode.GW_4XX)
    return fields


def _after_ms(requests: int) -> int:
    """When to poll again, for so many requests to poll."""
    return min(requests * 1000 // POLLS_PER_SECOND, POLL_MS_MAX)
