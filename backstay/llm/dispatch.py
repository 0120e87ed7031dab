"""Makes a batch of a shard: its lines in a file, the file uploaded, and the batch created from it, once."""

import asyncio
import json
from collections.abc import Sequence
from typing import BinaryIO, Final

from backstay.core.errors import OutcomeUnknown, Throttled, Transient
from backstay.core.failures import ErrorCode, Failure, FailureKind
from backstay.core.outcomes import Failed
from backstay.handlers.function import in_thread
from backstay.llm.batch_api import BATCHES, FILES, MARK, PROCESSED, BatchApi, FileView, read_file
from backstay.llm.http.wire import ProviderReply
from backstay.llm.lookup import Lookup
from backstay.llm.rate_limits import NO_HINTS
from backstay.llm.replies import read_reply
from backstay.llm.shards import SentBatch, Shard, ShardEntry, ShardLimits, drop_late, too_late
from backstay.llm.task_lane import TaskLane, id_in, object_in
from backstay.llm.temporary_files import open_temporary

UPLOADS_AT_ONCE: Final = 4
WINDOW: Final = "24h"
LOOK_SECONDS: Final = 0.5  # until the next look at a file that is still being processed; longer each time
LOOK_SECONDS_MAX: Final = 5.0


class Dispatch:
    """A file alone costs nothing, so all that goes wrong before the batch is created is certain to be undone. A file of
    which no batch was made is used for the same requests, also by the process that comes after a crash.

    The claims behind a shard must be young enough when its batch is created: a request that could arrive after others
    have asked about it, and found nothing, would be paid twice. They ask when the run's own time is over, and more; so
    the creation begins only while every run has the time left that it may take. That leaves large files time to be
    uploaded, and is never later than the moment at which a run that sends at its send guard may still be under way.
    """

    def __init__(
        self, lane: TaskLane, api: BatchApi, lookup: Lookup, limits: ShardLimits, create_seconds: float
    ) -> None:
        self._lane = lane
        self._api = api
        self._lookup = lookup
        self._limits = limits
        self._create_seconds = create_seconds
        self._slots = asyncio.Semaphore(UPLOADS_AT_ONCE)

    async def send(self, shard: Shard) -> SentBatch | Failed:
        """The batch; or what every request of the shard came to instead."""
        async with self._slots:
            drop_late(shard, 2 * self._create_seconds)
            if not shard.entries or shard.broken or shard.is_stopped():
                raise too_late()
            file = await self._file(shard)
        if isinstance(file, FileView):
            file = await self._processed(file, shard)
        return file if isinstance(file, Failed) else await self._create(shard, file)

    async def _file(self, shard: Shard) -> FileView | Failed:
        """The file of the shard: the one that is there, or else it is uploaded."""
        lines = open_temporary()
        try:
            entries = list(shard.entries.values())
            size = await in_thread(lambda: write_lines(lines, shard.key.url, entries))
            if (known := await self._known(shard, size)) is not None:
                return known
            reply = await self._sent(lines, shard)
        finally:
            lines.close()
        if not 200 <= reply.status <= 299:
            return self._smaller(self._refused(reply, shard), shard)
        said = object_in(reply)
        if said is None or (file_id := id_in(said)) is None:
            raise Transient("the provider took a file and gave no id for it")
        self._limits.bytes_fit(shard.bytes)
        self._lookup.remember(file_id, list(shard.entries))
        self._lookup.keep_unused(shard.digest, file_id)
        return read_file(file_id, said)

    async def _known(self, shard: Shard, size: int) -> FileView | None:
        file_id = self._lookup.unused(shard.digest)
        found = await self._api.show_file(file_id) if file_id is not None else None
        if found is None or found.broken or found.bytes != size:
            self._lookup.use(shard.digest)
            return None
        return found

    async def _processed(self, file: FileView, shard: Shard) -> FileView | Failed:
        """The file when a batch can be made of it. Claims that grow too old meanwhile come back to the same file."""
        seconds = LOOK_SECONDS
        while file.pending:
            left = shard.seconds_left - self._create_seconds
            if shard.broken or shard.is_stopped() or left <= 0:
                raise Throttled("the provider is still processing the file of the batch", LOOK_SECONDS_MAX)
            await self._lane.clock.sleep(min(seconds, left))
            seconds = min(2 * seconds, LOOK_SECONDS_MAX)
            file = await self._look(file)
        if file.broken:
            self._lookup.use(shard.digest)
            message = f"the provider could not process the file of the batch: {file.details or file.status}"
            return Failed(Failure(ErrorCode.GW_5XX, FailureKind.INFRASTRUCTURE, message))
        return file

    async def _look(self, file: FileView) -> FileView:
        try:
            found = await self._api.show_file(file.id)
        except (Transient, Throttled, OutcomeUnknown):
            return file  # it is looked at again
        if found is None:
            raise Transient("the provider no longer has the file of the batch")
        return found

    async def _sent(self, file: BinaryIO, shard: Shard) -> ProviderReply:
        ends_at = self._lane.clock.monotonic() + shard.seconds_left - self._create_seconds
        seconds = max(int(ends_at - self._lane.clock.monotonic()), 1)
        try:
            return await self._lane.wire.upload(
                FILES, {"purpose": "batch"}, f"{MARK}-{shard.digest}.jsonl", file, seconds
            )
        except OutcomeUnknown as error:
            if self._lane.clock.monotonic() >= ends_at - 2:
                self._limits.too_many_bytes(shard.bytes)
            raise Transient(f"the upload of {shard.bytes} bytes broke off: {error}") from None

    async def _create(self, shard: Shard, file: FileView) -> SentBatch | Failed:
        asked = {
            "input_file_id": file.id,
            "endpoint": shard.key.url,
            "completion_window": WINDOW,
            "metadata": {MARK: shard.digest},
        }
        if shard.broken or shard.is_stopped() or shard.seconds_left < self._create_seconds:
            raise too_late()  # no await between this and the request
        self._lookup.use(shard.digest)
        reply = await self._lane.wire.post(BATCHES, json.dumps(asked), self._create_seconds)
        if reply.status >= 500 or reply.status == 408:
            # Often it is a gateway that answers so, while the batch is made behind it: it can be looked for.
            raise OutcomeUnknown(f"the provider answered {reply.status} to the creation of a batch")
        if not 200 <= reply.status <= 299:
            self._lookup.keep_unused(shard.digest, file.id)
            return await self._refused_batch(reply, shard, file)
        self._tell(reply, shard)
        if (batch_id := id_in(object_in(reply))) is None:
            raise OutcomeUnknown("the provider took a batch and gave no id for it")
        if shard.is_stopped():  # nobody is left who would poll it, and nobody wants to pay for it
            await self._lane.cancel(f"{batch_id}/")
        return SentBatch(batch_id, len(shard.entries))

    async def _refused_batch(self, reply: ProviderReply, shard: Shard, file: FileView) -> Failed:
        """That the file was not ready after all is no fault of the requests."""
        refused = self._refused(reply, shard)
        if file.status != PROCESSED and refused.failure.kind is FailureKind.BUSINESS:
            found = await self._look(file)
            if found.pending or found.status == "uploaded":
                raise Transient(f"{refused.failure.message} (its file is {found.status})")
        return refused

    def _refused(self, reply: ProviderReply, shard: Shard) -> Failed:
        """What a refusal is to every request of the shard."""
        self._tell(reply, shard)
        outcome = read_reply(reply, self._lane.learn(reply), self._lane.price_of)
        assert isinstance(outcome, Failed), "only an answer can be a success"
        return outcome

    def _tell(self, reply: ProviderReply, shard: Shard) -> None:
        """The answer was one to every request; how long files take says nothing about the pace."""
        learned = self._lane.learn(reply)
        for _ in shard.entries:
            self._lane.pacer.answered(reply.status, 0.0, learned)
            learned = NO_HINTS  # it was one call, whatever it was for

    def _smaller(self, refused: Failed, shard: Shard) -> Failed:
        """A file that is too large is no fault of its requests, as long as it can be made smaller."""
        if refused.failure.code is ErrorCode.TOO_LARGE and len(shard.entries) > 1:
            self._limits.too_many_bytes(shard.bytes)
            raise Throttled(f"the provider refused a file of {shard.bytes} bytes; the next one is smaller")
        return refused


def write_lines(file: BinaryIO, url: str, entries: Sequence[ShardEntry]) -> int:
    """Returns how many bytes they are."""
    middle = f'","method":"POST","url":{json.dumps(url)},"body":'
    for entry in entries:
        file.write(f'{{"custom_id":"{entry.ref}{middle}{entry.body}}}\n'.encode())
    size = file.tell()
    file.seek(0)
    return size
