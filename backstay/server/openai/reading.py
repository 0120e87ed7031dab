"""The requests of a batch, read from its file one by one."""

from collections.abc import AsyncIterator
from typing import Final

from backstay.core.errors import NotFound
from backstay.llm.formats import InputOptions, ParsedRequest
from backstay.llm.lines import text_of
from backstay.server.openai.content import content
from backstay.server.openai.survey import LineCutter, RequestLines
from backstay.server.service import Service
from backstay.store.batches import Batch
from backstay.store.files import StoredFile

BREATH_LINES: Final = 200  # after so many, others have their turn


async def requests_of(service: Service, batch: Batch) -> AsyncIterator[tuple[int, ParsedRequest]]:
    """Each with the number of its line."""
    file = await service.store.files.source(batch.input_file_id, batch.owner)
    if file is None:
        raise NotFound(f"the bytes of file {batch.input_file_id} are gone")
    # What a batch may not ask for is found when its file comes in; a batch that has begun is read to its end.
    parse, number = RequestLines(InputOptions(background=True)), 0
    async for line in _lines(service, file):
        number += 1
        if text := text_of(line):
            yield number, parse(number, text)
        if number % BREATH_LINES == 0:
            await service.main.clock.sleep(0)


async def _lines(service: Service, file: StoredFile) -> AsyncIterator[bytes]:
    lines = LineCutter()
    async for piece in content(service, file):
        for line in lines.feed(piece):
            yield line
    yield lines.end()
