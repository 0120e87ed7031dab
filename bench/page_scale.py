"""What every page costs at millions of items, over what it costs at thousands: the time until a browser can paint."""

from __future__ import annotations

import http.client
import re
from functools import partial
from http.cookies import SimpleCookie
from urllib.parse import urlencode, urlsplit

from bench import service_scale
from bench.probes import NotMeasured
from bench.served import Served

prepare = service_scale.prepare

_lines: dict[str, Reader] = {}


class Reader:
    """A browser as far as time goes: one connection that stays open, and the cookie of who has logged in."""

    def __init__(self, found: Served) -> None:
        self._line = http.client.HTTPConnection(urlsplit(found.url).netloc, timeout=300)
        self._cookies: dict[str, str] = {}
        token = re.search(r'name="token" value="([^"]+)"', self.ask("GET", "/login"))
        assert token is not None
        self.ask("POST", "/login", urlencode({"token": token[1], "key": found.key}))

    def ask(self, method: str, path: str, body: str | None = None) -> str:
        headers = {
            "Accept": "text/html",
            "Cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items()),
        }
        self._line.request(method, path, body, headers | {"Content-Type": "application/x-www-form-urlencoded"})
        reply = self._line.getresponse()
        text = reply.read().decode()
        for header in reply.headers.get_all("set-cookie", []):
            self._cookies |= {name: morsel.value for name, morsel in SimpleCookie(header).items()}
        if reply.status != (200 if method == "GET" else 303):
            raise NotMeasured(f"{method} {path}: {reply.status} {text[:300]}")
        return text


def page_scale(n: int) -> dict[str, float]:
    with service_scale.both(n) as asked:
        ratios = {name: service_scale.ratio(asked, partial(look, name)) for name in pages(n)}
    return service_scale.said("page", ratios)


def look(name: str, found: Served, items: int) -> object:
    reader = _lines.get(found.url) or _lines.setdefault(found.url, Reader(found))
    return reader.ask("GET", pages(items)[name])


def pages(n: int) -> dict[str, str]:
    """Every page. In the middle of the job are a failed item, one that has succeeded and one that waits."""
    middle = n // 2
    return {
        "home": "/",
        "home_of_a_week": "/?span=7d",
        "jobs": "/jobs",
        "jobs_searched": "/jobs?q=noop&state=running",
        "job": "/jobs/1",
        "job_failed_items": f"/jobs/1?state=failed&code=GW_5XX&from={middle}",
        "item_failed": f"/items/1-{middle}",
        "item_waiting": f"/items/1-{middle + 10}",
        "item_succeeded": f"/items/1-{middle + 1}",
        "dead_letters": "/dead-letters",
        "dead_letters_of_a_code": "/dead-letters?code=GW_5XX&job=1",
        "providers": "/providers",
        "schedules": "/schedules",
        "safety": "/safety",
        "workers": "/workers",
        "keys": "/keys",
    }
