"""Together AI: calls as at OpenAI; files that go to a store of their own, and batches that carry no mark of ours."""

import hashlib
import json
from typing import Any, BinaryIO, Final
from urllib.parse import quote

from backstay.core.errors import Transient
from backstay.handlers.function import in_thread
from backstay.llm.batch_lookup import ASK_SECONDS
from backstay.llm.bodies import id_in, moment_ms, object_in, require_object, text_in, whole_in
from backstay.llm.provider import Certainty, LlmProvider, ProviderReply
from backstay.llm.providers.openai.batch_api import (
    BATCHES,
    FILES,
    WINDOW,
    FilesAndBatches,
    FileView,
    LineError,
    OpenAiBatch,
    OurFile,
    our_digest,
    read_file,
)
from backstay.llm.providers.openai.batches import OpenAiBatches
from backstay.llm.providers.openai_compatible import preset
from backstay.llm.shards import BATCH_REQUESTS_MAX, Shard, ShardBounds

_FOUND: Final = 302
_KNOWN_ALREADY: Final = 409
_BOUNDARY: Final = "backstay-form-of-a-few-short-fields"
_FILE_STATUSES: Final = {"queued": "pending", "completed": "processed", "invalid_format": "error"}


class TogetherFilesAndBatches(FilesAndBatches):
    def line_middle(self, url: str) -> str:
        """A line has no path: it is in the batch."""
        return '","body":'

    async def upload(self, name: str, lines: BinaryIO, seconds: float) -> ProviderReply:
        """In three steps: the provider names a URL, the bytes are sent there, and a last call says so. A file that
        it already has is not sent again."""
        content = await in_thread(lines.read)
        fields = {"purpose": "batch-api", "file_name": name, "file_type": "jsonl"}
        form = _form({**fields, "checksum": hashlib.sha256(content).hexdigest()})
        kind = {"content-type": f"multipart/form-data; boundary={_BOUNDARY}"}
        reply = await self._wire.exchange("POST", FILES, form, kind, timeout_seconds=seconds)
        if reply.status == _KNOWN_ALREADY and (file_id := id_in(object_in(reply), "file_id")) is not None:
            return await self._wire.get(f"{FILES}/{quote(file_id, safe='')}", timeout_seconds=ASK_SECONDS)
        place, file_id = reply.headers.get("location"), reply.headers.get("x-together-file-id")
        if reply.status != _FOUND or not place or not file_id:
            return reply
        stored = await self._wire.exchange("PUT", place, content, timeout_seconds=seconds)
        if not 200 <= stored.status <= 299:
            raise Transient(f"the provider's store answered {stored.status} to an upload")
        return await self._wire.post(f"{FILES}/{quote(file_id, safe='')}/preprocess", "", seconds)

    def read_file(self, file_id: str, said: dict[str, Any]) -> FileView:
        found = read_file(file_id, {**said, "status": said.get("processing_status")})
        return found._replace(status=_FILE_STATUSES.get(found.status or "", found.status))

    async def create(self, file_id: str, shard: Shard, seconds: float) -> ProviderReply:
        asked = {"input_file_id": file_id, "endpoint": shard.key.url, "completion_window": WINDOW}
        return await self._wire.post(BATCHES, json.dumps(asked), seconds)

    def created_id(self, reply: ProviderReply) -> str | None:
        said = object_in(reply)
        job = said.get("job") if said is not None else None
        return id_in(job) if isinstance(job, dict) else None

    def read_batch(self, said: dict[str, Any]) -> OpenAiBatch:
        batch_id, status, error = said.get("id"), said.get("status"), text_in(said.get("error"))
        if not isinstance(batch_id, str) or not isinstance(status, str):
            raise Transient("the provider's answer about a batch has no id or no status")
        created = moment_ms(said.get("created_at"))
        return OpenAiBatch(
            id=batch_id,
            status=status.lower(),
            input_file_id=text_in(said.get("input_file_id")),
            output_file_id=text_in(said.get("output_file_id")),
            error_file_id=text_in(said.get("error_file_id")),
            created_at=None if created is None else created // 1000,
            model=text_in(said.get("model_id")),
            total=0,
            done=0,
            errors=() if error is None else (LineError(status.lower(), error, None),),
            marked=False,
        )

    async def since(self, created_at: int) -> list[OpenAiBatch]:
        """The list is one array, without pages."""
        reply = self._require_answer(await self._wire.get(BATCHES, None, ASK_SECONDS))
        try:
            said = json.loads(reply.text)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, list) or not all(isinstance(each, dict) for each in said):
            raise Transient("the provider's list is not valid")
        found = map(self.read_batch, said)
        return [batch for batch in found if batch.created_at is None or batch.created_at >= created_at]

    async def our_files(self) -> list[OurFile]:
        said = require_object(self._require_answer(await self._wire.get(FILES, None, ASK_SECONDS)))
        files = said.get("data")
        if not isinstance(files, list) or not all(isinstance(each, dict) for each in files):
            raise Transient("the provider's list is not valid")
        named = [(file, our_digest(file.get("filename"))) for file in files]
        return [
            OurFile(str(file.get("id")), digest, whole_in(file.get("created_at")))
            for file, digest in named
            if digest is not None
        ]


def _form(fields: dict[str, str]) -> bytes:
    parts = [
        f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    return f"{''.join(parts)}--{_BOUNDARY}--\r\n".encode()


class TogetherBatches(OpenAiBatches):
    """A batch is found only by its file, in a list that may be incomplete."""

    calls = TogetherFilesAndBatches
    bounds = ShardBounds(BATCH_REQUESTS_MAX, bytes_max=50 << 20)  # Together accepts 50,000 requests and 100 MB
    certainty = Certainty.IF_FOUND


PROVIDER: Final[LlmProvider] = preset(
    "together", "https://api.together.ai/v1", batches=TogetherBatches, price_list="together"
)
