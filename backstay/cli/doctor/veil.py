"""Takes out of every finding what must stay secret, should a library's words ever repeat it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from backstay.llm.credentials import Veil

if TYPE_CHECKING:
    from backstay.cli.doctor.finding import Setup

SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "OPENAI_API_KEY")


def veil_of(setup: "Setup") -> Veil:
    return Veil(_secrets(setup))


def _secrets(setup: "Setup") -> Iterator[str | None]:
    from backstay.signing import read_keys

    settings = setup.settings
    yield from (settings.secret_key, *read_keys(settings.secret_key or ""))
    for url in (setup.app.url, settings.broker_url, settings.redis_url, settings.gateway_url):
        yield from _passwords(url)
    for name in (*SECRET_VARIABLES, *((setup.endpoint.key_env,) if setup.endpoint else ())):
        yield setup.environ.get(name)


def _passwords(url: str | None) -> Iterator[str]:
    try:
        password = urlsplit(url or "").password
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)
