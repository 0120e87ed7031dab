"""Someone before the pages without a browser: cookies, forms with their tokens, and what a page really holds."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.cookies import SimpleCookie
from typing import Any

from backstay.server.pages.page_request import COOKIE
from backstay.store.keys import Role
from tests.server.rig import Reply, Rig

VOID = {"meta", "link", "input", "img", "br", "rect", "use", "path", "circle"}


class Held(HTMLParser):
    """The elements and the text of a page, as a browser would take them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.pieces: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.pieces).split())

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def links(self) -> list[str]:
        return [one["href"] for one in self.all("a") if "href" in one]

    @property
    def token(self) -> str:
        return next(one["value"] for one in self.all("input") if one.get("name") == "token")

    @property
    def actions(self) -> list[str]:
        return [one["action"] for one in self.all("form") if one.get("method") == "post"]


@dataclass(slots=True)
class Reader:
    rig: Rig
    cookies: dict[str, str] = field(default_factory=dict)
    at: str = "/login"  # the page whose token is sent

    async def __call__(self, method: str, path: str, **given: Any) -> Reply:
        said = {"accept": "text/html", **given.pop("headers", {})}
        if self.cookies:
            said["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        reply = await self.rig.holder(None)(method, path, headers=said, **given)
        for header in reply.headers.getall("set-cookie", []):  # type: ignore[attr-defined]
            for name, morsel in SimpleCookie(header).items():
                if morsel["max-age"] == "0":
                    self.cookies.pop(name, None)
                else:
                    self.cookies[name] = morsel.value
        return reply

    async def get(self, path: str, **given: Any) -> Reply:
        return await self("GET", path, **given)

    async def held(self, path: str, status: int = 200) -> Held:
        reply = await self.get(path)
        assert reply.status == status, reply
        return Held(reply.body.decode())

    async def token(self) -> str:
        return (await self.held("/login")).token

    async def post(self, path: str, headers: dict[str, str] | None = None, **fields: str) -> Reply:
        """A form with the token of this reader's pages, unless `token` is given."""
        fields = {"token": await self.token(), **fields}
        return await self("POST", path, data=fields, headers=headers or {})

    async def follow(self, reply: Reply) -> Held:
        """The page that a form leads to."""
        assert reply.status == 303, reply
        return await self.held(reply.headers["location"])


async def reader(rig: Rig, owner: str = "ada", role: Role = Role.ADMIN) -> Reader:
    """Logged in."""
    made = Reader(rig)
    reply = await made.post("/login", key=rig.keys[owner, role])
    assert (reply.status, COOKIE in made.cookies) == (303, True), reply
    return made
