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
    """The proxy of the scheme, otherwise the one for all schemes, as in curl and httpx; None for a host in no_proxy."""
    named = getproxies()
    scheme = base.scheme if named.get(base.scheme) else "all"
    if not named.get(scheme) or proxy_bypass(base.netloc):
        return None
    proxy = _url(named[scheme])
    if proxy.scheme not in ("http", "https") or not proxy.host:
        said = "a SOCKS proxy" if proxy.scheme.startswith("socks") else "an invalid proxy URL"
        raise UsageError(
            f"the variable {scheme}_proxy (or {scheme.upper()}_PROXY) names {said}; only HTTP proxies are supported",
            hint="set it to an http:// or https:// proxy, or add the host to no_proxy to connect without a proxy",
        )
    if proxy.user is None:
        return Proxy(proxy, {})
    login = base64.b64encode(f"{proxy.user}:{proxy.password or ''}".encode()).decode()
    # Under this name aiohttp takes a proxy's login for requests through a tunnel and for those without one.
    return Proxy(proxy.with_user(None), {"Authorization": f"Basic {login}"})


def _url(named: str) -> URL:
    try:
        return URL(named if "://" in named else f"http://{named}")
    except ValueError:
        return URL()
