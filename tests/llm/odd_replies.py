"""Odd replies by their heads, as the bytes that a server sends: some valid, some often seen, some just wrong."""

from typing import Final, NamedTuple

SAID: Final = b'{"id":"odd","text":"\xc3\xa9"}'
SIZE: Final = b"%d" % len(SAID)
OK: Final = b"HTTP/1.1 200 OK\r\n"
LAST: Final = b"0\r\n\r\n"


class Odd(NamedTuple):
    """The pieces in which a reply is sent, and whether the server then closes, resets, or waits for a next request."""

    pieces: tuple[bytes, ...]
    ends: str = "stays"


def whole(*lines: bytes, body: bytes = SAID, first: bytes = b"HTTP/1.1 200 OK") -> Odd:
    """A reply of a known length, with these header lines."""
    head = b"\r\n".join((first, *lines, b"Content-Length: %d" % len(body)))
    return Odd((head + b"\r\n\r\n" + body,))


def closed(*pieces: bytes) -> Odd:
    return Odd(pieces, "closes")


def raw(*pieces: bytes) -> Odd:
    return Odd(pieces)


def in_bytes(odd: Odd) -> Odd:
    """The same, a byte at a time."""
    text = b"".join(odd.pieces)
    return odd._replace(pieces=tuple(text[at : at + 1] for at in range(len(text))))


def chunk(data: bytes, size: bytes | None = None) -> bytes:
    return (b"%x" % len(data) if size is None else size) + b"\r\n" + data + b"\r\n"


def with_lf(odd: Odd) -> Odd:
    return odd._replace(pieces=tuple(piece.replace(b"\r\n", b"\n") for piece in odd.pieces))


STATUS_LINES: Final = {
    "plain": whole(),
    "in single bytes": in_bytes(whole()),
    "no reason": whole(first=b"HTTP/1.1 200"),
    "empty reason": whole(first=b"HTTP/1.1 200 "),
    "long reason": whole(first=b"HTTP/1.1 200 " + b"fine " * 200),
    "reason in latin-1": whole(first=b"HTTP/1.1 200 tr\xe8s bien"),
    "reason in UTF-8": whole(first=b"HTTP/1.1 200 \xe2\x9c\x93"),
    "status without a blank after it": whole(first=b"HTTP/1.1 200OK"),
    "two blanks before the status": whole(first=b"HTTP/1.1  200 OK"),
    "a tab before the status": whole(first=b"HTTP/1.1\t200 OK"),
    "status of two digits": whole(first=b"HTTP/1.1 20 OK"),
    "status of four digits": whole(first=b"HTTP/1.1 2000 OK"),
    "status that is no number": whole(first=b"HTTP/1.1 abc OK"),
    "status 299": whole(first=b"HTTP/1.1 299 Odd"),
    "status 599": whole(first=b"HTTP/1.1 599 Odd"),
    "status 799": whole(first=b"HTTP/1.1 799 Odd"),
    "HTTP/1.0 with a length": whole(first=b"HTTP/1.0 200 OK"),
    "HTTP/1.0 that is kept": whole(b"Connection: keep-alive", first=b"HTTP/1.0 200 OK"),
    "HTTP/1.0 to the end": closed(b"HTTP/1.0 200 OK\r\n\r\n" + SAID),
    "HTTP/1.2": whole(first=b"HTTP/1.2 200 OK"),
    "HTTP/2.0": whole(first=b"HTTP/2.0 200 OK"),
    "HTTP/3.0": whole(first=b"HTTP/3.0 200 OK"),
    "HTTP in small letters": whole(first=b"http/1.1 200 OK"),
    "ICY": whole(first=b"ICY 200 OK"),
    "no status line": closed(SAID),
    "another protocol": closed(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    "a TLS alert": closed(b"\x15\x03\x03\x00\x02\x02\x28"),
    "line end before the status line": raw(b"\r\n", *whole().pieces),
    "two line ends before the status line": raw(b"\r\n\r\n" + whole().pieces[0]),
    "a blank before the status line": raw(b" " + whole().pieces[0]),
    "nothing": closed(),
    "half a status line": closed(b"HTTP/1.1 20"),
}
HEADERS: Final = {
    "no headers, to the end": closed(OK + b"\r\n" + SAID),
    "names in capitals": raw(OK + b"CONTENT-LENGTH: " + SIZE + b"\r\n\r\n" + SAID),
    "names in small letters": raw(OK + b"content-length:" + SIZE + b"\r\n\r\n" + SAID),
    "folded by a blank": whole(b"X-Odd: one,", b" two,", b" three"),
    "folded by a tab": whole(b"X-Odd: one,", b"\ttwo"),
    "folded from its beginning": whole(b"X-Odd:", b" one"),
    "folded with a blank line": whole(b"X-Odd: one", b"  ", b" two"),
    "folded length": raw(OK + b"Content-Length:\r\n " + SIZE + b"\r\n\r\n" + SAID),
    "folded in single bytes": in_bytes(whole(b"X-Odd: one,", b" two")),
    "folded coding": raw(OK + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + chunk(SAID) + LAST),
    "a fold before any header": raw(OK + b" X-Odd: one\r\nContent-Length: " + SIZE + b"\r\n\r\n" + SAID),
    "line feeds only": with_lf(whole(b"X-Odd: one", b"Content-Type: application/json")),
    "line feeds only, in single bytes": in_bytes(with_lf(whole(b"X-Odd: one"))),
    "a line feed after the status": raw(b"HTTP/1.1 200 OK\nContent-Length: " + SIZE + b"\r\n\r\n" + SAID),
    "a line feed after one header": whole(b"X-Odd: one\nX-Even: two"),
    "a line feed for the blank line": raw(OK + b"Content-Length: " + SIZE + b"\r\n\n" + SAID),
    "line feeds and folds": with_lf(whole(b"X-Odd: one", b" two")),
    "carriage returns only": raw(whole().pieces[0].replace(b"\r\n", b"\r")),
    "two carriage returns": raw(OK[:-2] + b"\r\r\nContent-Length: " + SIZE + b"\r\n\r\n" + SAID),
    "a carriage return in a value": whole(b"X-Odd: one\rtwo"),
    "no value": whole(b"X-Odd:"),
    "blanks around a value": whole(b"X-Odd:   \t one \t "),
    "blanks after the length": raw(OK + b"Content-Length: " + SIZE + b" \t\r\n\r\n" + SAID),
    "a blank before the colon": whole(b"X-Odd : one"),
    "a blank in a name": whole(b"X Odd: one"),
    "no colon": whole(b"bad header"),
    "no name": whole(b": one"),
    "a bracket in a name": whole(b"X(Odd): one"),
    "a name in UTF-8": whole(b"X-\xc3\xa9: one"),
    "a value in latin-1": whole(b"X-Odd: \xe9t\xe9"),
    "a value in UTF-8": whole(b"X-Odd: \xc3\xa9"),
    "a bell in a value": whole(b"X-Odd: \x07"),
    "a delete in a value": whole(b"X-Odd: \x7f"),
    "a NUL in a value": whole(b"X-Odd: a\x00b"),
    "a NUL in a name": whole(b"X-\x00Odd: a"),
    "the same name twice": whole(b"X-Odd: one", b"x-odd: two"),
    "many cookies": whole(*(b"Set-Cookie: a%d=b" % number for number in range(60))),
    "a hundred headers": whole(*(b"X-Odd-%d: one" % number for number in range(100))),
    "200 headers": whole(*(b"X-Odd-%d: one" % number for number in range(200))),
    "a header of 8,000 bytes": whole(b"X-Odd: " + b"y" * 8_000),
    "a header of 20,000 bytes": whole(b"X-Odd: " + b"y" * 20_000),
    "30 headers of 1,000 bytes": whole(*(b"X-Odd-%d: %s" % (number, b"y" * 1_000) for number in range(30))),
    "headers without an end": closed(OK + b"X-Odd: " + b"y" * 200_000),
    "headers cut off": closed(OK + b"Content-Length: " + SIZE + b"\r\nX-Od"),
}
