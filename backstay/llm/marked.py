"""Adds to a request's body what finds it again at the provider; all else of it stays byte for byte."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from backstay.core.errors import ErrorCode, Permanent
from backstay.llm.lines import LineRefused, Member, members

REF: Final = "backstay_ref"
_PAIRS_MAX: Final = 16  # of metadata, by the provider's own rule


def marked(body: str, ref: str, added: Mapping[str, str]) -> str:
    """The body with members whose values are given as JSON, and with the reference in its metadata."""
    try:
        found = members(text := body.strip())
    except LineRefused as refused:
        raise Permanent(f"the body {refused}", ErrorCode.GW_4XX) from None
    metadata = next((member for member in reversed(found) if member.key == "metadata"), None)
    return spliced(text, found, {**added, **_merged(text, metadata, ref)})


def spliced(text: str, found: Sequence[Member], values: Mapping[str, str]) -> str:
    """The object with these values: in place where it has the member, at its beginning where it does not."""
    pieces: list[str] = []
    at = 1  # behind the brace
    for member in found:
        if member.key in values:
            pieces += (text[at : member.start], values[member.key])
            at = member.end
    there = {member.key for member in found}
    new = [f"{json.dumps(key)}:{value}" for key, value in values.items() if key not in there]
    comma = "," if new and found else ""
    return "".join(("{", ",".join(new), comma, *pieces, text[at:]))


def _merged(text: str, metadata: Member | None, ref: str) -> dict[str, str]:
    """Metadata of the user's own is kept; where there is no room beside it, the reference is left out."""
    if metadata is None or metadata.value is None:
        return {"metadata": json.dumps({REF: ref})}
    if not isinstance(metadata.value, dict) or len({**metadata.value, REF: ref}) > _PAIRS_MAX:
        return {}
    own = text[metadata.start : metadata.end]
    return {"metadata": spliced(own, members(own), {REF: json.dumps(ref)})}
