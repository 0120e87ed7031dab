"""The proxy that the environment names for a host, if any."""

import base64
from typing import NamedTuple
from urllib.parse import SplitResult
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from backstay.core.errors import UsageError


class Proxy(NamedTuple):
    url: URL  # without its login
    headers: dict[str, str]


def proxy_of(base: SplitResult) -> Proxy | None:
    named = getproxies().get(base.scheme)
    if not named or proxy_bypass(base.netloc):
        return None
    try:
        proxy = URL(named if "://" in named else f"http://{named}")
    except ValueError:
        proxy = URL()
    if proxy.scheme not in ("http", "https") or not proxy.host:
        raise UsageError(f"the {base.scheme}_proxy of the environment is no URL of an HTTP proxy")
    if proxy.user is None:
        return Proxy(proxy, {})
    login = base64.b64encode(f"{proxy.user}:{proxy.password or ''}".encode()).decode()
    # Under this name aiohttp takes a proxy's login for requests through a tunnel and for those without one.
    return Proxy(proxy.with_user(None), {"Authorization": f"Basic {login}"})
