"""What makes a request to a remote worker, and the way back from it, one that only this service can have made."""

from collections.abc import Mapping
from typing import Final

from backstay.clock import Clock
from backstay.core.errors import UsageError
from backstay.core.ids import job_of, read_item
from backstay.handlers.context import Context
from backstay.signing import Signer, sealed
from backstay.store.inbox import InboxMessages

PURPOSE: Final = "callback"


def secrets_of(signer: Signer, owner: str) -> list[str]:
    """What an owner's requests to remote workers are signed with, as Standard Webhooks writes it."""
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
        return sealed(secrets_of(self._signer, owner), name, self._clock.now_ms(), body)
