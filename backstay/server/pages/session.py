"""The visitor of a page: a signed cookie that names a key, and a token that every form must send back."""

from typing import Final, NamedTuple

from fastapi import Request, Response

from backstay.clock import new_id
from backstay.server.service import Service
from backstay.signing import Signer

COOKIE: Final = "backstay_session"
LIVES_MS: Final = 12 * 3_600_000
SKEW_MS_MAX: Final = 5_000  # the server that gave it may have a clock that is ahead of this one's
_LENGTH_MAX: Final = 200


class Session(NamedTuple):
    """`key_id` is empty for visitors without a key. The random part cannot be guessed by another site."""

    key_id: str
    issued_at: int
    chance: str


def begin(service: Service, key_id: str = "") -> Session:
    return Session(key_id, service.main.clock.now_ms(), new_id())


def sealed(signer: Signer, session: Session) -> str:
    return ".".join((*map(str, session), signer.tag("session", *session)))


def unsealed(signer: Signer, text: str | None, now_ms: int) -> Session | None:
    """The session that a cookie stands for; None when it is not ours, or its time is over."""
    parts = (text or "")[:_LENGTH_MAX].split(".")
    if len(parts) != 4 or not (parts[1].isascii() and parts[1].isdigit()):
        return None
    session = Session(parts[0], int(parts[1]), parts[2])
    is_in_time = -SKEW_MS_MAX <= now_ms - session.issued_at < LIVES_MS
    return session if is_in_time and signer.fits(parts[3], "session", *session) else None


def token_of(signer: Signer, session: Session) -> str:
    """What a form brings back to show that this service made it, for this session."""
    return signer.tag("form", session.chance)


def is_https(request: Request, service: Service) -> bool:
    """Whether the browser came over TLS. Any proxy may say so: a client that lies loses only its own cookie."""
    public = service.backstay.settings.public_url or ""
    said = request.headers.get("x-forwarded-proto", "")
    return "https" in (request.url.scheme, said.strip().lower()) or str(public).startswith("https://")


def give(response: Response, request: Request, service: Service, session: Session) -> None:
    response.set_cookie(
        COOKIE,
        sealed(service.signer, session),
        max_age=LIVES_MS // 1000,
        path="/",
        secure=is_https(request, service),
        httponly=True,
        samesite="strict",
    )


def take(response: Response, request: Request, service: Service) -> None:
    secure = is_https(request, service)
    response.delete_cookie(COOKIE, path="/", secure=secure, httponly=True, samesite="strict")
