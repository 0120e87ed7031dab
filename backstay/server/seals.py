"""What makes a request to a remote worker, and the way back from it, one that only this service can have made."""

from collections.abc import Mapping
from typing import Final

from backstay.clock import Clock
from backstay.core.ids import show_item
from backstay.server.signing import Signer, sealed

PURPOSE: Final = "callback"


def secret_of(signer: Signer, owner: str) -> str:
    """What an owner's requests to remote workers are signed with, as Standard Webhooks writes it."""
    return signer.secret_of(f"remote\0{owner}", 1)


def fits(signer: Signer, tag: str, item: str, fence: str) -> bool:
    """Whether a tag was made for this try at this item, as both are written; it takes as long either way."""
    return tag.isascii() and signer.fits(tag, PURPOSE, item, fence)


class Seals:
    def __init__(self, signer: Signer, clock: Clock) -> None:
        self.signer = signer
        self._clock = clock

    def tag(self, item: int, fence: int) -> str:
        return self.signer.tag(PURPOSE, show_item(item), fence)

    def sign(self, owner: str, name: str, body: str) -> Mapping[str, str]:
        return sealed([secret_of(self.signer, owner)], name, self._clock.now_ms(), body)
