"""Which application and which database a command means, and how it gets at them."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from backstay.core.errors import BackstayError, UsageError

if TYPE_CHECKING:
    from backstay.app import Backstay
    from backstay.client import Client

T = TypeVar("T")

_FORM = "name it as MODULE:NAME, for example shop.work:backstay"


class Target(NamedTuple):
    """A database, and where its name came from."""

    url: str
    source: str


def run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(work)


def load_app(named: str | None, db: str | None = None) -> "Backstay":
    """The application that a command was given, on the database it is to use."""
    app = _import_app(_app_name(named))
    target = _own(db) or (Target(app.settings.database_url, "the application") if app.settings.database_url else None)
    return _on(app, target or _default())


def open_app(db: str | None, must_exist: bool = True) -> "Backstay":
    """An application without handlers: for commands that only look at a database or change what is in it."""
    from backstay.app import Backstay

    target = choose(db)
    if must_exist and target.source != "the default":
        require_file(target)
    return _on(Backstay(), target)


@asynccontextmanager
async def client_of(app: "Backstay") -> AsyncIterator["Client"]:
    try:
        yield await app.open()
    finally:
        await app.close()


def with_client(app: "Backstay", work: Callable[["Client"], Coroutine[Any, Any, T]]) -> T:
    """Opens the application's database, does the work and closes it, whatever happens."""

    async def inside() -> T:
        async with client_of(app) as client:
            return await work(client)

    return run(inside())


def choose(db: str | None) -> Target:
    """The flag, the settings, the application that the settings name, or the user's own file."""
    from backstay import settings

    found = _own(db)
    if found is None:
        loaded = settings.load()
        if loaded.database_url:
            in_environment = bool(os.environ.get(f"{settings.PREFIX}DATABASE_URL"))
            source = f"{settings.PREFIX}DATABASE_URL" if in_environment else settings.FILE_NAME
            found = Target(loaded.database_url, source)
        elif loaded.app:
            url = _import_app(loaded.app).settings.database_url
            found = Target(url, "the application") if url else None
    found = found or _default()
    check_url(found.url)
    return found


def check_url(url: str) -> None:
    """Refuses what cannot be a database before anything is opened or made."""
    from backstay import wiring
    from backstay.store.urls import is_postgres, postgres_url

    try:
        port = urlsplit(url).port
    except ValueError as error:
        raise UsageError(f"the database URL is not valid: {error}", hint=_URL_HINT) from None
    if not is_postgres(url):
        wiring.sqlite_path(url)
    elif postgres_url(url) and port == 0:
        raise UsageError("the database URL is not valid: port 0", hint=_URL_HINT)


_URL_HINT = "use sqlite:///file.db or postgresql://user@host:5432/name"


def require_file(target: Target) -> None:
    """A command that only looks must not make a new, empty database out of a typing error."""
    name = missing_file(target.url)
    if name:
        raise UsageError(f"there is no database file {name}", hint="`backstay migrate` makes one, --db names another")


def missing_file(url: str) -> str | None:
    """The name of the SQLite file that is not there yet."""
    from backstay import wiring
    from backstay.store.urls import is_postgres

    file = None if is_postgres(url) else Path(wiring.sqlite_path(url))
    return file.name if file is not None and not file.exists() else None


def default_file() -> Path:
    data = os.environ.get("XDG_DATA_HOME") or ""
    home = Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share"
    return home / "backstay" / "backstay.db"


def _own(db: str | None) -> Target | None:
    return None if db is None else Target(db, "--db")


def _default() -> Target:
    file = default_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {file.parent}: {error.strerror}", hint="name a database: --db"
        ) from None
    return Target(f"sqlite:///{file}", "the default")


def _on(app: "Backstay", target: Target) -> "Backstay":
    check_url(target.url)
    app.settings = app.settings.model_copy(update={"database_url": target.url})
    return app


def _app_name(named: str | None) -> str:
    from backstay import settings

    chosen = named or settings.load().app
    if not chosen:
        raise UsageError("no application is named", hint="give --app MODULE:NAME, or set BACKSTAY_APP")
    return chosen


def _import_app(named: str) -> "Backstay":
    from backstay.app import Backstay

    module_name, colon, attribute = named.partition(":")
    if not (colon and attribute and all(part.isidentifier() for part in module_name.split("."))):
        raise UsageError(f"{named!r} names no application", hint=_FORM)
    found: Any = _import_module(module_name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{module_name} has no {attribute!r}", hint=_apps_in(found))
        found = getattr(found, part)
    if not isinstance(found, Backstay):
        raise UsageError(f"{named} is a {type(found).__name__}, not a Backstay", hint=_FORM)
    return found


def _import_module(name: str) -> Any:
    """Imports from the working folder too; what goes wrong inside is told in one line."""
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(f"there is no module {error.name!r}", hint="run it in the folder of your code") from error
        raise UsageError(f"{name} needs the module {error.name!r}, which is missing", hint="install it") from error
    except BackstayError as error:
        raise UsageError(f"{name} cannot be imported: {error.message}", hint=error.hint) from error
    except (Exception, SystemExit) as error:
        said = f"{name} cannot be imported: {type(error).__name__}: {error}"
        raise UsageError(said, hint="for the trace run it again with BACKSTAY_DEBUG=1") from error


def _apps_in(module: Any) -> str:
    from backstay.app import Backstay

    names = [name for name, value in vars(module).items() if isinstance(value, Backstay)]
    return f"it has {', '.join(names)}" if names else "it has no Backstay at all"
