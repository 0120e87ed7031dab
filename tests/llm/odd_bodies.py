"""Odd replies by their bodies: lengths, chunks, packings, what comes before them, and those without any."""

import gzip
import zlib
from typing import Final

from tests.llm.odd_replies import (
    HEADERS,
    LAST,
    OK,
    SAID,
    SIZE,
    STATUS_LINES,
    Odd,
    chunk,
    closed,
    in_bytes,
    raw,
    whole,
    with_lf,
)

CHUNKED: Final = OK + b"Transfer-Encoding: chunked\r\n\r\n"
BARE: Final = zlib.compressobj(wbits=-zlib.MAX_WBITS)
RAW_DEFLATE: Final = BARE.compress(SAID) + BARE.flush()
TWO_MEMBERS: Final = gzip.compress(SAID[:9]) + gzip.compress(SAID[9:])


def in_chunks(*lines: bytes, body: bytes = SAID) -> Odd:
    head = b"".join(line + b"\r\n" for line in (*lines, b"Transfer-Encoding: chunked"))
    return raw(OK + head + b"\r\n" + chunk(body[:7]) + chunk(body[7:]) + LAST)


def packed(coding: bytes, body: bytes) -> Odd:
    return whole(b"Content-Encoding: " + coding, body=body)


def length(value: bytes, *lines: bytes, body: bytes = SAID) -> Odd:
    head = b"".join(line + b"\r\n" for line in (*lines, b"Content-Length: " + value))
    return raw(OK + head + b"\r\n" + body)


def coded(value: bytes, *lines: bytes, body: bytes = chunk(SAID) + LAST) -> Odd:
    head = b"".join(line + b"\r\n" for line in (b"Transfer-Encoding: " + value, *lines))
    return raw(OK + head + b"\r\n" + body)


def chunks(*pieces: bytes) -> Odd:
    return raw(CHUNKED + b"".join(pieces))


LENGTHS: Final = {
    "length 0": length(b"0", body=b""),
    "leading zeros": length(b"000" + SIZE),
    "a plus": length(b"+" + SIZE),
    "a minus": length(b"-5"),
    "hexadecimal": length(b"0x" + SIZE),
    "a blank inside": length(b"2 5"),
    "a length in words": length(b"many"),
    "no length in it": length(b""),
    "more than 64 bits": length(b"9" * 30),
    "the length twice": length(SIZE, b"Content-Length: " + SIZE),
    "two lengths that differ": length(SIZE, b"Content-Length: 3"),
    "a list of one length": length(SIZE + b", " + SIZE),
    "a length and chunks": length(SIZE, b"Transfer-Encoding: chunked", body=chunk(SAID) + LAST),
    "chunks and a length": coded(b"chunked", b"Content-Length: 3"),
    "a length and a coding that is not chunked": length(SIZE, b"Transfer-Encoding: identity")._replace(ends="closes"),
    "shorter than its length, closed": length(b"100")._replace(ends="closes"),
    "shorter than its length, reset": length(b"100")._replace(ends="resets"),
    "shorter than its length, held": length(b"100")._replace(ends="holds"),
    "longer than its length": length(b"3"),
    "longer than its length, in another piece": raw(OK + b"Content-Length: 3\r\n\r\n", SAID[:3], SAID[3:])._replace(
        ends="closes"
    ),
    "two answers at once": raw(whole(body=b'{"id":1}').pieces[0] + whole().pieces[0]),
    "a second answer begun": raw(whole(body=b'{"id":1}').pieces[0] + OK),
    "a line end after it": raw(whole(body=b'{"id":1}').pieces[0] + b"\r\n"),
    "closed at once after it": whole()._replace(ends="closes"),
    "said to close": whole(b"Connection: close")._replace(ends="closes"),
    "said to close, and not closed": whole(b"Connection: close"),
    "an unknown connection": whole(b"Connection: odd"),
    "to the end": closed(OK + b"Connection: close\r\n\r\n", SAID[:5], SAID[5:]),
    "to the end, nothing": closed(OK + b"\r\n"),
    "to the end, reset": Odd((OK + b"\r\n" + SAID,), "resets"),
    "to the end, held": Odd((OK + b"\r\n" + SAID,), "holds"),
}
CHUNKS: Final = {
    "in chunks": in_chunks(),
    "in chunks, in single bytes": in_bytes(in_chunks()),
    "chunks of one byte": chunks(*(chunk(SAID[at : at + 1]) for at in range(len(SAID))), LAST),
    "an extension": chunks(chunk(SAID, b"%x;odd=1" % len(SAID)), LAST),
    "an extension in quotes": chunks(chunk(SAID, b'%x;odd="a b;c"' % len(SAID)), LAST),
    "an extension without a value": chunks(chunk(SAID, b"%x;odd" % len(SAID)), b"0;end\r\n\r\n"),
    "a blank before an extension": chunks(chunk(SAID, b"%x ;odd=1" % len(SAID)), LAST),
    "blanks after the size": chunks(chunk(SAID, b"%x  " % len(SAID)), LAST),
    "blanks after the last size": chunks(chunk(SAID), b"0  \r\n\r\n"),
    "a tab after the size": chunks(chunk(SAID, b"%x\t" % len(SAID)), LAST),
    "a blank before the size": chunks(chunk(SAID, b" %x" % len(SAID)), LAST),
    "size in capitals": chunks(chunk(SAID, b"%X" % len(SAID)), LAST),
    "size with leading zeros": chunks(chunk(SAID, b"0000%x" % len(SAID)), LAST),
    "size with 0x": chunks(chunk(SAID, b"0x%x" % len(SAID)), LAST),
    "size with a minus": chunks(chunk(SAID, b"-5"), LAST),
    "size that is none": chunks(chunk(SAID, b"zz"), LAST),
    "empty size": chunks(chunk(SAID, b""), LAST),
    "size of more than 64 bits": chunks(chunk(SAID, b"f" * 20), LAST),
    "line feeds between chunks": raw(CHUNKED + (chunk(SAID) + LAST).replace(b"\r\n", b"\n")),
    "a line feed after a size": chunks(b"%x\n" % len(SAID) + SAID + b"\r\n", LAST),
    "no line end after a chunk": chunks(b"%x\r\n" % len(SAID) + SAID, LAST),
    "no chunk but the last": chunks(LAST),
    "trailers": chunks(chunk(SAID), b"0\r\nX-Odd: one\r\nX-Even: two\r\n\r\n"),
    "folded trailers": chunks(chunk(SAID), b"0\r\nX-Odd: one\r\n two\r\n\r\n"),
    "a trailer without a colon": chunks(chunk(SAID), b"0\r\nodd\r\n\r\n"),
    "a trailer with a length": chunks(chunk(SAID), b"0\r\nContent-Length: 3\r\n\r\n"),
    "chunks with line feeds in the headers": raw(CHUNKED.replace(b"\r\n", b"\n") + chunk(SAID) + LAST),
    "cut in a chunk": closed(CHUNKED + chunk(SAID)[:9]),
    "cut in a size": closed(CHUNKED + chunk(SAID) + b"5"),
    "cut before the last chunk": closed(CHUNKED + chunk(SAID)),
    "cut in the last chunk": closed(CHUNKED + chunk(SAID) + b"0\r\n"),
    "reset before the last chunk": Odd((CHUNKED + chunk(SAID),), "resets"),
    "held before the last chunk": Odd((CHUNKED + chunk(SAID),), "holds"),
    "coding in capitals": coded(b"CHUNKED"),
    "blanks around the coding": coded(b" \tchunked \t")._replace(ends="holds"),  # aiohttp waits for a body without end
    "chunked twice": coded(b"chunked, chunked"),
    "two codings in two headers": coded(b"identity", b"Transfer-Encoding: chunked"),
    "gzip, then chunked": coded(b"gzip, chunked", body=chunk(gzip.compress(SAID)) + LAST),
    "chunked, then gzip": coded(b"chunked, gzip", body=SAID)._replace(ends="closes"),
    "coding identity": coded(b"identity", body=SAID)._replace(ends="closes"),
    "an unknown coding": coded(b"xchunked", body=SAID)._replace(ends="closes"),
    "an empty coding": coded(b"", body=SAID)._replace(ends="closes"),
    "chunks in HTTP/1.0": raw(CHUNKED.replace(b"1.1", b"1.0") + chunk(SAID) + LAST),
}
PACKED: Final = {
    "gzip": packed(b"gzip", gzip.compress(SAID)),
    "gzip in single bytes": in_bytes(packed(b"gzip", gzip.compress(SAID))),
    "gzip in chunks": in_chunks(b"Content-Encoding: gzip", body=gzip.compress(SAID)),
    "gzip to the end": closed(OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(SAID)),
    "gzip in capitals": packed(b"GZip", gzip.compress(SAID)),
    "gzip of two members": packed(b"gzip", TWO_MEMBERS),
    "gzip of two members, in single bytes": in_bytes(packed(b"gzip", TWO_MEMBERS)),
    "gzip of two members, in two chunks": raw(
        OK + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
        chunk(gzip.compress(SAID[:9])),
        chunk(gzip.compress(SAID[9:])) + LAST,
    ),
    "gzip of an empty member and one": packed(b"gzip", gzip.compress(b"") + gzip.compress(SAID)),
    "gzip with something after it": packed(b"gzip", gzip.compress(SAID) + b"odd"),
    "gzip with zeros after it": packed(b"gzip", gzip.compress(SAID) + bytes(8)),
    "gzip whose second member has a wrong sum": packed(b"gzip", TWO_MEMBERS[:-8] + b"12345678"),
    "x-gzip": packed(b"x-gzip", gzip.compress(SAID)),
    "gzip with a wrong sum": packed(b"gzip", gzip.compress(SAID)[:-8] + b"12345678"),
    "gzip of nothing": packed(b"gzip", gzip.compress(b"")),
    "no body, said to be gzip": packed(b"gzip", b""),
    "no gzip, said to be": packed(b"gzip", SAID),
    "gzip that is cut": packed(b"gzip", gzip.compress(SAID)[:-12]),
    "gzip whose second member is cut": packed(b"gzip", TWO_MEMBERS[:-12]),
    "deflate": packed(b"deflate", zlib.compress(SAID)),
    "deflate in single bytes": in_bytes(packed(b"deflate", zlib.compress(SAID))),
    "deflate without a header": packed(b"deflate", RAW_DEFLATE),
    "deflate without a header, in single bytes": in_bytes(packed(b"deflate", RAW_DEFLATE)),
    "deflate that is cut": packed(b"deflate", zlib.compress(SAID)[:-6]),
    "deflate twice in a row": packed(b"deflate", zlib.compress(SAID[:9]) + zlib.compress(SAID[9:])),
    "no deflate, said to be": packed(b"deflate", SAID),
    "no body, said to be deflate": packed(b"deflate", b""),
    "identity": packed(b"identity", SAID),
    "an empty packing": packed(b"", SAID),
    "packing UTF-8": packed(b"utf-8", SAID),
    "packing none": packed(b"none", SAID),
    "br": packed(b"br", b"\x0b\x0e\x80" + SAID + b"\x03"),
    "zstd": packed(b"zstd", b"\x28\xb5\x2f\xfd"),
    "two packings": packed(b"gzip, gzip", gzip.compress(gzip.compress(SAID))),
    "two packings, the last one none": whole(b"Content-Encoding: gzip", b"Content-Encoding: identity"),
}
BEFORE: Final = {
    "100 before it": raw(b"HTTP/1.1 100 Continue\r\n\r\n", *whole().pieces),
    "100 in the same piece": raw(b"HTTP/1.1 100 Continue\r\n\r\n" + whole().pieces[0]),
    "102 before it": raw(b"HTTP/1.1 102 Processing\r\n\r\n", *whole().pieces),
    "103 with headers before it": raw(
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nX-Odd: early\r\n\r\n", *whole().pieces
    ),
    "100 three times": raw(*[b"HTTP/1.1 100 Continue\r\n\r\n"] * 3, *whole().pieces),
    "100 with line feeds": with_lf(raw(b"HTTP/1.1 100 Continue\r\n\r\n", *whole().pieces)),
    "100 in single bytes": in_bytes(raw(b"HTTP/1.1 100 Continue\r\n\r\n", *whole().pieces)),
    "100 with a length of 0": raw(b"HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n", *whole().pieces),
    "199 before it": raw(b"HTTP/1.1 199 Odd\r\n\r\n", *whole().pieces),
    "100 and the end": closed(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "101": Odd((b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: odd\r\nConnection: upgrade\r\n\r\n",), "holds"),
    "an upgrade offered": whole(b"Upgrade: h2c", b"Connection: Upgrade"),
}
BODILESS: Final = {
    "204": raw(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "204 with a length of 0": raw(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"),
    "204 with a length and no body": raw(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"),
    "204 said to be in chunks": raw(b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "204 said to be gzip": raw(b"HTTP/1.1 204 No Content\r\nContent-Encoding: gzip\r\n\r\n"),
    "205": raw(b"HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n"),
    "304": raw(b"HTTP/1.1 304 Not Modified\r\n\r\n"),
    "304 with the length of another": raw(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n"),
    "307": raw(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"),
    "429 with a body": whole(b"Retry-After: 3", first=b"HTTP/1.1 429 Too Many Requests"),
    "500 to the end": closed(b"HTTP/1.1 500 Odd\r\n\r\n" + SAID),
    "503 that is cut": closed(b"HTTP/1.1 503 Odd\r\nContent-Length: 99\r\n\r\n" + SAID),
    "503 in chunks": raw(b"HTTP/1.1 503 Odd\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(SAID) + LAST),
    "503 with folds": whole(b"X-Odd: one", b" two", first=b"HTTP/1.1 503 Odd"),
}
CORPUS: Final = {
    f"{of}: {name}": odd
    for of, cases in {
        "status line": STATUS_LINES,
        "headers": HEADERS,
        "length": LENGTHS,
        "chunks": CHUNKS,
        "packed": PACKED,
        "before": BEFORE,
        "bodiless": BODILESS,
    }.items()
    for name, odd in cases.items()
}
