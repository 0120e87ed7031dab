"""One batch's life: checked, run line by line in the background, and ended."""

from itertools import islice
from random import Random
from typing import Any

from backstay.practice.batch_lines import Check, Checked, Line, Wrong, parsed, read_lines
from backstay.practice.batch_work import BatchWork
from backstay.practice.files import File
from backstay.practice.shop import Shop

STEPS = 20
STEP_LINES_MAX = 250  # so that other requests are answered in between
CHECK_SHARE, RUN_SHARE, WRITE_SHARE = 0.1, 0.8, 0.1  # of the time that a batch takes
FILE_SECONDS = 30 * 86_400
EXPIRED = ("batch_expired", "This request could not be executed before the completion window expired.")
CANCELLED = ("batch_cancelled", "This request was not executed because the batch was cancelled.")


class BatchRun:
    def __init__(self, shown: dict[str, Any], shop: Shop) -> None:
        self._shown = shown
        self._shop = shop
        self._rng = Random(f"{shop.gate.faults.seed} {shown['input_file_id']}")
        self._work = BatchWork(shown["endpoint"], shop)

    @property
    def id(self) -> str:
        return str(self._shown["id"])

    @property
    def status(self) -> str:
        return str(self._shown["status"])

    def dump(self) -> dict[str, Any]:
        return self._shown

    def cancel(self) -> None:
        if self.status not in ("cancelling", "cancelled"):
            self._move("cancelling")

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            self._work.close()
            self._shop.enqueued.pop(self.id, None)

    async def _run(self) -> None:
        seconds = self._shop.gate.faults.batch_seconds
        await self._sleep(seconds * CHECK_SHARE)
        file = self._shop.files.find(self._shown["input_file_id"])
        checked = await self._check(file)
        if file is None or checked.wrong:
            self._fail(checked.wrong)
            return
        self._shown["model"] = checked.model
        self._count(checked.total)
        if self.status == "validating":
            self._move("in_progress")
        ended = await self._run_lines(file, checked, seconds * RUN_SHARE)
        if self.status == "in_progress":
            self._move("finalizing")
        await self._sleep(seconds * WRITE_SHARE)
        made = self._work.publish(self.id, FILE_SECONDS)
        self._shown |= {"output_file_id": made["output"], "error_file_id": made["error"], "usage": self._work.usage}
        self._move("cancelled" if self.status == "cancelling" else ended)

    async def _check(self, file: File | None) -> Checked:
        if file is None:
            name = self._shown["input_file_id"]
            return Checked(0, None, 0, [Wrong("invalid_request", f"Cannot find file {name}.", param="file_id")])
        check = Check(self._shown["endpoint"])
        for count, (number, text) in enumerate(read_lines(file.path), start=1):
            check.step(number, text)
            if count % STEP_LINES_MAX == 0:
                await self._sleep(0)
        return self._with_room(check.result(file.bytes))

    def _with_room(self, checked: Checked) -> Checked:
        """A batch whose tokens do not fit beside those that wait already is refused whole."""
        limit, enqueued = self._shop.gate.faults.batch_enqueued_tokens, self._shop.enqueued
        over = limit is not None and sum(enqueued.values()) + checked.tokens > limit
        if checked.wrong:
            return checked
        if over or checked.model == "practice-token-limit":
            said = f"Enqueued token limit reached for {checked.model}. Limit: {limit or 0:,} enqueued tokens."
            return checked._replace(wrong=[Wrong("token_limit_exceeded", said)])
        enqueued[self.id] = checked.tokens
        return checked

    async def _run_lines(self, file: File, checked: Checked, seconds: float) -> str:
        """Runs the lines in steps, out of order within a step, and returns how the batch ends."""
        expires = checked.model == "practice-expire" or self._rng.random() < self._shop.gate.faults.batch_expire
        last = checked.total // 2 if expires else checked.total
        lines, done = parsed(file.path), 0
        size = max(min(checked.total // STEPS + 1, STEP_LINES_MAX), 1)
        while chunk := list(islice(lines, size)):
            self._rng.shuffle(chunk)
            for line in chunk:
                self._take(line, done < last)
                done += 1
            self._count(checked.total)
            await self._sleep(seconds * len(chunk) / checked.total)
        return "expired" if expires else "completed"

    def _take(self, line: Line, in_time: bool) -> None:
        if self.status == "cancelling":
            self._work.leave_out(line, *CANCELLED)
        elif in_time:
            self._work.run(line)
        else:
            self._work.leave_out(line, *EXPIRED)

    def _count(self, total: int) -> None:
        self._shown["request_counts"] = {
            "total": total,
            "completed": self._work.completed,
            "failed": self._work.failed,
        }

    def _fail(self, wrong: list[Wrong]) -> None:
        if self.status == "cancelling":
            self._move("cancelled")
            return
        self._shown["errors"] = {"object": "list", "data": [each._asdict() for each in wrong]}
        self._move("failed")

    def _move(self, status: str) -> None:
        self._shown["status"] = status
        self._shown[f"{status}_at"] = self._shop.now()

    async def _sleep(self, seconds: float) -> None:
        await self._shop.gate.clock.sleep(0 if self.status == "cancelling" else seconds)
