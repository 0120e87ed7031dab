"""One request for a page: the session, the visitor, their role, and the form that they send."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

from fastapi import Request, Response

from backstay.clock import new_id
from backstay.core.errors import ErrorCode
from backstay.core.models import Flaw
from backstay.core.signing import Signer
from backstay.server.auth import Principal, is_from_this_machine
from backstay.server.problems import Problem
from backstay.server.request_limits import whole_bytes
from backstay.server.service import Service, service_of
from backstay.store.keys import Role

COOKIE: Final = "backstay_session"
LIVES_MS: Final = 12 * 3_600_000
SKEW_MS_MAX: Final = 5_000  # the server that issued it may have a clock that is ahead
_LENGTH_MAX: Final = 200


class Session(NamedTuple):
    """`key_id` is empty for visitors without a key. The random part cannot be guessed by another site."""

    key_id: str
    issued_at: int
    chance: str


def begin_session(service: Service, key_id: str = "") -> Session:
    return Session(key_id, service.main.clock.now_ms(), new_id())


def seal_session(signer: Signer, session: Session) -> str:
    return ".".join((*map(str, session), signer.tag("session", *session)))


def open_session(signer: Signer, text: str | None, now_ms: int) -> Session | None:
    """The session in a cookie; None if we did not sign it, or it has expired."""
    parts = (text or "")[:_LENGTH_MAX].split(".")
    if len(parts) != 4 or not (parts[1].isascii() and parts[1].isdigit()):
        return None
    session = Session(parts[0], int(parts[1]), parts[2])
    is_in_time = -SKEW_MS_MAX <= now_ms - session.issued_at < LIVES_MS
    return session if is_in_time and signer.fits(parts[3], "session", *session) else None


def token_of(signer: Signer, session: Session) -> str:
    """The token of forms: it proves that this service made the form, for this session."""
    return signer.tag("form", session.chance)


def is_https(request: Request, service: Service) -> bool:
    """Whether the browser came over TLS. Any proxy may say so: a client that lies loses only its own cookie."""
    public = service.backstay.settings.public_url or ""
    said = request.headers.get("x-forwarded-proto", "")
    return "https" in (request.url.scheme, said.strip().lower()) or str(public).startswith("https://")


def set_session_cookie(response: Response, request: Request, service: Service, session: Session) -> None:
    response.set_cookie(
        COOKIE,
        seal_session(service.signer, session),
        max_age=LIVES_MS // 1000,
        path="/",
        secure=is_https(request, service),
        httponly=True,
        samesite="strict",
    )


def delete_session_cookie(response: Response, request: Request, service: Service) -> None:
    secure = is_https(request, service)
    response.delete_cookie(COOKIE, path="/", secure=secure, httponly=True, samesite="strict")


FORM_BYTES_MAX: Final = 64 << 10
FIELDS_MAX: Final = 100
TOKEN_FIELD: Final = "token"
NO_FLAW: Final = "none"


@dataclass(frozen=True, slots=True)
class Visit:
    request: Request
    service: Service
    session: Session
    is_new: bool  # the cookie of the session is not set yet
    who: Principal | None
    form: Mapping[str, str]

    @property
    def owner(self) -> str:
        return self.principal.owner

    @property
    def principal(self) -> Principal:
        assert self.who is not None, "this page has no visitor"
        return self.who

    @property
    def name(self) -> str:
        """The name under which acts are recorded."""
        return self.principal.name

    @property
    def token(self) -> str:
        return token_of(self.service.signer, self.session)

    @property
    def query(self) -> Mapping[str, str]:
        """The query string without unprintable characters; of a repeated name, the last value."""
        return {name: "".join(filter(str.isprintable, value)) for name, value in self.request.query_params.items()}

    def may(self, role: Role | str) -> bool:
        return self.who is not None and self.who.role.includes(Role(role))

    def require(self, role: Role) -> None:
        if not self.may(role):
            raise Problem(
                403,
                f"this needs the role {role.value}; yours is {self.principal.role.value}",
                hint="log in with another key",
            )


async def visit_of_anyone(request: Request) -> Visit:
    """Any visitor, with or without a key."""
    service = service_of(request)
    cookie = request.cookies.get(COOKIE)
    session = open_session(service.signer, cookie, service.main.clock.now_ms())
    who: Principal | None = None
    if session is not None and session.key_id:
        key = await service.ring.by_id(session.key_id)
        if key is None or session.issued_at <= (key.left_at or 0):
            session = None  # revoked, expired, or logged out
        else:
            who = Principal(key.owner, key.role, key.id)
    if who is None and service.options.open_here and is_from_this_machine(request):
        who = Principal(service.owner, Role.ADMIN)
    return Visit(request, service, session or begin_session(service), session is None, who, {})


async def visit_to_read(request: Request, role: Role = Role.READ) -> Visit:
    """A visitor with the role. Without a key they are redirected to the login, and from there back."""
    visit = await visit_of_anyone(request)
    if visit.who is None:
        raise _to_login(request)
    visit.require(role)
    return visit


async def visit_to_act(request: Request, role: Role = Role.WRITE) -> Visit:
    """A form sent by a visitor with the needed role, from a page of this service that was made for them."""
    visit = await visit_of_anyone(request)
    if visit.who is None:
        raise _to_login(request)
    checked = await with_form(visit)
    checked.require(role)
    return checked


async def with_form(visit: Visit) -> Visit:
    request, service = visit.request, visit.service
    if not _from_own_page(request, service):
        raise Problem(403, "this form was sent by another site")
    text = (await whole_bytes(request, FORM_BYTES_MAX)).decode("utf-8", "replace")
    try:
        fields = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError:
        raise Problem(413, f"the form has more than {FIELDS_MAX} fields") from None
    given = fields.pop(TOKEN_FIELD, "")
    if visit.is_new or not service.signer.fits(given, "form", visit.session.chance):
        raise Problem(
            403,
            "this form has expired, or comes from another site",
            hint="go back, reload the page, and send the form again",
        )
    form = {name: value.replace("\0", "") for name, value in fields.items()}
    return Visit(request, service, visit.session, visit.is_new, visit.who, form)


def _from_own_page(request: Request, service: Service) -> bool:
    """By the headers of the browser. The scheme is not compared: behind a proxy it may differ."""
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = request.headers.get("origin")
    own = {request.headers.get("host", ""), _host_of(str(service.backstay.settings.public_url or ""))}
    return origin is None or _host_of(origin) in own - {""}


def _host_of(url: str) -> str:
    """The host and port of a URL; empty if it is not a URL."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def _to_login(request: Request) -> Problem:
    if request.method != "GET" or "part" in request.query_params:
        return Problem(401, "you are not logged in, or your session has ended", hint="log in, then try again")
    return Problem(
        303, "log in first", headers={"location": f"/login?next={quote(own_path(request)[:2_000], safe='/')}"}
    )


def own_path(request: Request) -> str:
    """The path and query of the requested page."""
    query = f"?{request.url.query}" if request.url.query else ""
    return quote(request.url.path, safe="/%") + query


def local_path(path: str | None) -> str:
    """Where to go after a form: a path on this site; any other target becomes /."""
    path = path or "/"
    outside = not path.startswith("/") or path.startswith("//")
    return "/" if outside or not path.isprintable() or "\\" in path else path


def read_error_code(text: str | None) -> str | None:
    """The error code in a query or a form; None if it is empty."""
    if not text:
        return None
    if text not in {code.value for code in ErrorCode}:
        raise Problem(400, f"there is no error code {text[:40]}")
    return text


def read_flaw(text: str | None) -> str | None:
    """The flaw in a query or a form; None if it is empty, an empty text for items without a flaw."""
    if not text:
        return None
    if text != NO_FLAW and text not in {flaw.value for flaw in Flaw}:
        raise Problem(400, f"there is no flaw {text[:40]}")
    return "" if text == NO_FLAW else text


def whole_number(text: str, most: int) -> int | None:
    """A whole number from a query or a form; None if it is not a number, or too large."""
    text = text.strip()
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return int(text) if is_number and int(text) <= most else None
