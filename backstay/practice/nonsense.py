"""Hostile answers with status 200: not JSON, not the right JSON, not text, cut short, far too long."""

import functools
import zlib

from backstay.practice.refusals import JSON, Reply

BOMB_BYTES = 1 << 30
_PIECE_BYTES = 1 << 24


def nonsense(kind: str, right: Reply, huge_bytes: int) -> Reply:
    """What stands in for the right answer."""
    if kind == "nonsense-html":
        page = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
        return Reply(200, page, {"Content-Type": "text/html"})
    if kind == "nonsense-type":
        return Reply(200, b'["choices", {"usage": "none"}, 3]')
    if kind == "nonsense-charset":
        return Reply(200, b'{"choices": "\xff\xfe\xc3"}', {"Content-Type": "application/json; charset=no-such-set"})
    if kind == "nonsense-truncated":
        return right._replace(body=right.body[: len(right.body) * 2 // 3])
    if kind == "nonsense-empty":
        return right._replace(body=b"")
    if kind == "nonsense-huge":
        return Reply(200, b'{"choices": "%s"}' % (b"x" * huge_bytes))
    return Reply(200, bomb(), {**JSON, "Content-Encoding": "gzip"})


@functools.cache
def bomb() -> bytes:
    """A gigabyte of blanks in a megabyte of gzip. The checksum is wrong, but nobody should get that far."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = packer.compress(b'{"choices": "') + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush the packer knows nothing of what came before, so the same piece fits again and again.
    piece = packer.compress(b" " * _PIECE_BYTES) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + piece * (BOMB_BYTES // _PIECE_BYTES) + packer.flush(zlib.Z_FINISH)
