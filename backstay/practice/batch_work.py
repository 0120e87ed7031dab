"""Runs the lines of a batch and writes what comes of them to its output and error files."""

import json
from pathlib import Path
from typing import Any, BinaryIO

from backstay.practice.batch_lines import Line
from backstay.practice.bodies import Call, call_of
from backstay.practice.endpoints import generate
from backstay.practice.mishaps import FAIL, asked_for, refusal
from backstay.practice.refusals import Refused
from backstay.practice.responses import usage_of
from backstay.practice.shop import Shop

OUTPUT, ERROR = "output", "error"


class BatchWork:
    """The work of one batch: what was done, what it took, and the two files while they grow."""

    def __init__(self, endpoint: str, shop: Shop) -> None:
        self._endpoint = endpoint
        self._shop = shop
        self.completed = 0
        self.failed = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self._paths: dict[str, Path] = {}
        self._open: dict[str, BinaryIO] = {}

    def run(self, line: Line) -> None:
        call = call_of(self._endpoint, line.body, {})
        gate = self._shop.gate
        gate.counts.calls += 1
        mishap = gate.fate(call.digest, call.body, {}).mishap
        try:
            self._shop.calls.require_quota()
            # Other mishaps are between a client and the provider, and no client waits for this line.
            if mishap in FAIL or asked_for(line.body, {}) is not None:
                self._stumble(mishap)
            text = self._made(call, mishap)
        except Refused as refused:
            self.failed += 1
            self._write(ERROR, line, refused.status, json.dumps(refused.body))
            return
        self.completed += 1
        for _ in range({"missing": 0, "duplicate": 2}.get(mishap, 1)):
            self._write(OUTPUT, line, 200, text)

    def leave_out(self, line: Line, code: str, message: str) -> None:
        """A line that was never run."""
        self.failed += 1
        error = json.dumps({"code": code, "message": message})
        self._append(ERROR, f'"custom_id":{json.dumps(line.custom_id)},"response":null,"error":{error}')

    def publish(self, name: str, lives_seconds: int) -> dict[str, str | None]:
        """Closes the files and makes them known; a file without lines is none."""
        made: dict[str, str | None] = {OUTPUT: None, ERROR: None}
        self.close()
        for kind, path in self._paths.items():
            made[kind] = self._shop.files.add(path, f"{name}_{kind}.jsonl", "batch_output", lives_seconds).id
        return made

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    @property
    def usage(self) -> dict[str, Any]:
        return usage_of(self.input_tokens, self.output_tokens)

    def _stumble(self, mishap: str) -> None:
        gate = self._shop.gate
        gate.counts.faults[mishap] += 1
        if refused := refusal(mishap, gate.faults, gate.clock.now_ms()):
            raise refused
        if mishap == "zero":
            raise Refused(0, "The provider lost this line (practice).")

    def _made(self, call: Call, mishap: str) -> str:
        made = generate(self._endpoint, call.body, self._shop.calls.stamp(mishap))
        if not made.free:
            self._shop.bill.charge(call.ref, call.digest, made.input_tokens, made.output_tokens, halved=True)
        self.input_tokens += made.input_tokens
        self.output_tokens += made.output_tokens
        return made.text

    def _write(self, kind: str, line: Line, status: int, body: str) -> None:
        request_id = f"req_{self._shop.gate.mark()}"
        response = f'{{"status_code":{status},"request_id":"{request_id}","body":{body}}}'
        self._append(kind, f'"custom_id":{json.dumps(line.custom_id)},"response":{response},"error":null')

    def _append(self, kind: str, text: str) -> None:
        if kind not in self._open:
            self._paths[kind] = self._shop.files.new_path()
            self._open[kind] = self._paths[kind].open("wb")
        self._open[kind].write(f'{{"id":"batch_req_{self._shop.gate.mark()}",{text}}}\n'.encode())
