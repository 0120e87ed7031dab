"""Which application and which database a command uses, and how it opens them."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from backstay.cli.command import app_option_value, on_same_database
from backstay.core.display import NextCommand, Sentence
from backstay.core.errors import BackstayError, NotFound, UsageError

if TYPE_CHECKING:
    from backstay.app import Backstay
    from backstay.artifacts import Artifacts
    from backstay.client import Client


T = TypeVar("T")

_FORM = "write MODULE:NAME, for example shop.work:backstay"


class DatabaseSource(StrEnum):
    """Where the name of a database comes from, in the words that people see."""

    FLAG = "--db"
    ENVIRONMENT = "BACKSTAY_DATABASE_URL"
    FILE = "backstay.toml"
    APPLICATION = "the application"
    DEFAULT = "the default"


LENIENT = (
    DatabaseSource.DEFAULT,
    DatabaseSource.APPLICATION,
)  # these were not typed just now, so a missing file is not a typing error


class Target(NamedTuple):
    """A database, where its name came from, and the application if that was imported for it."""

    url: str
    source: DatabaseSource
    app: "Backstay | None" = None

    @property
    def description(self) -> str:
        return show_database(self.url)


class NoFileYet(NotFound):
    """There is no database yet."""


def run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    from backstay.clock import new_event_loop

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(work)
    except BackstayError as error:
        error.hint = on_same_database(error.hint)
        raise


def load_app(named: str | None, db: str | None = None) -> "Backstay":
    """The application that a command was given, on the database it is to use."""
    app = _import_app(_app_name(named))
    target = _target_of_flag(db) or _target_of(app)
    make_folder(target)
    check_url(target.url)
    return app_on(target._replace(app=app))


def load_served_app(named: str | None, db: str | None = None) -> "Backstay":
    """The application whose handlers run; without one, only requests that `run` and `submit` queued."""
    from backstay import settings

    if not (named or settings.load().app):
        return open_app(db)
    app = load_app(named, db)
    if len(app.handlers) == 0:
        raise UsageError("the application registers no handlers", hint="register one with @backstay.handler()")
    return app


def use_broker(app: "Backstay", url: str | None) -> "Backstay":
    """Uses the broker of the flag or the settings. Raises at once if its URL is not valid or a package is missing."""
    if url is not None:
        app.settings = app.settings.model_copy(update={"broker_url": url})
    if app.settings.broker_url is not None:
        from backstay.messaging.connection import check_url, require_aio_pika

        require_aio_pika()
        check_url(app.settings.broker_url)
    return app


def use_key_commands(app: "Backstay", commands: dict[str, str] | None) -> None:
    """The commands of the flags, by provider, win over those of the settings."""
    if commands is not None:
        known = app.settings.api_key_command
        both = {**(known if isinstance(known, dict) else {}), **commands}
        app.settings = app.settings.model_copy(update={"api_key_command": both})


def open_with_broker(db: str | None, url: str | None) -> tuple["Backstay", str]:
    """For commands that look at a broker or change what is on it: the application, and the broker's URL."""
    app = use_broker(open_app(db), url)
    if app.settings.broker_url is None:
        raise UsageError("no broker URL is given", hint="give --broker, or set BACKSTAY_BROKER_URL")
    return app, app.settings.broker_url


def open_app(db: str | None, must_exist: bool = True) -> "Backstay":
    """For commands that read or change a database, and need no handlers."""
    return open_target(choose(db), must_exist)


def open_target(target: Target, must_exist: bool = True) -> "Backstay":
    if must_exist:
        require_file(target)
    else:
        make_folder(target)
    check_url(target.url)
    return app_on(target)


def app_on(target: Target) -> "Backstay":
    """The application of the target, or an empty one, on its database, which need not exist."""
    from backstay.app import Backstay

    app = target.app or Backstay()
    app.settings = app.settings.model_copy(update={"database_url": target.url})
    return app


def open_files(app: "Backstay", data: str | None) -> "Artifacts":
    """The storage for files of an application."""
    from backstay.artifacts import default_folder, files_at

    return files_at(data or app.settings.data or str(default_folder(app.url)), app.settings)


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

    try:
        return run(inside())
    except NotFound as error:
        error.hint = "; ".join(part for part in (f"looked in {show_database(app.url)}", error.hint) if part)
        raise


def choose(db: str | None) -> Target:
    """--db, the database of the application that is named, the environment, backstay.toml, or the user's own file."""
    from backstay import settings

    loaded = settings.load()
    named = app_option_value() or loaded.app
    if named:
        app = _import_app(named)  # also with --db: the owner of the jobs is the application's
        found = (_target_of_flag(db) or _target_of(app))._replace(app=app)
    else:
        found = _target_of_flag(db) or _target_of_settings(loaded.database_url) or _default_target()
    if found.source is not DatabaseSource.DEFAULT:  # whose folder may not be there yet
        check_url(found.url)
    return found


def _target_of_flag(db: str | None) -> Target | None:
    return None if db is None else Target(db, DatabaseSource.FLAG)


def _target_of_settings(url: str | None) -> Target | None:
    from backstay import settings

    in_environment = bool(os.environ.get(f"{settings.PREFIX}DATABASE_URL"))
    return Target(url, DatabaseSource.ENVIRONMENT if in_environment else DatabaseSource.FILE) if url else None


def _target_of(app: "Backstay") -> Target:
    """The application has read the environment and backstay.toml itself, unless its code names a database."""
    url = app.settings.database_url
    return Target(url, DatabaseSource.APPLICATION) if url else _default_target()


def check_url(url: str) -> None:
    """Refuses what cannot be a database before anything is opened or made."""
    from backstay import wiring
    from backstay.store.databases.database import is_postgres, postgres_url

    if is_postgres(url):
        if "://" not in url:
            raise UsageError("the database URL is not valid: // is missing after postgresql:", hint=_URL_HINT)
        postgres_url(url)
        return
    try:
        _ = urlsplit(url).port
    except ValueError as error:
        raise UsageError(f"the database URL is not valid: {error}", hint=_URL_HINT) from None
    wiring.sqlite_path(url)


_URL_HINT = "use sqlite:///file.db or postgresql://user@host:5432/name"


def require_file(target: Target) -> None:
    """A command that only reads must not create an empty database, for example after a typing error."""
    name = missing_file(target.url)
    hint = on_same_database(Sentence("`", NextCommand("migrate"), "` creates it, --db chooses another"))
    if name and target.source in LENIENT:
        raise NoFileYet(
            f"there is no {target.description} yet", hint=f"this database comes from {target.source}; {hint}"
        )
    if name:
        raise UsageError(f"there is no database file {name}", hint=hint)


def missing_file(url: str) -> str | None:
    """The name of the SQLite file that is not there yet."""
    from backstay.store.databases.database import is_postgres

    file = None if is_postgres(url) else Path(url.removeprefix("sqlite:///"))
    return file.name if file is not None and not file.exists() else None


def show_database(url: str) -> str:
    """A database as people see it, without the secrets in its URL."""
    from backstay.store.databases import database

    return database.show_url(url) if database.is_postgres(url) else f"SQLite file {url.removeprefix('sqlite:///')}"


def _default_target() -> Target:
    from backstay.settings import default_file

    return Target(f"sqlite:///{default_file()}", DatabaseSource.DEFAULT)


def make_folder(target: Target) -> None:
    """The user's own file gets its folder when something is to be stored there."""
    if target.source is not DatabaseSource.DEFAULT:
        return
    from backstay.settings import default_file

    folder = default_file().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        said = f"cannot create the folder {folder}: {error.strerror}"
        raise UsageError(said, hint="choose a database with --db") from None


def _app_name(named: str | None) -> str:
    from backstay import settings

    chosen = named or settings.load().app
    if not chosen:
        raise UsageError("no application is given", hint="give --app MODULE:NAME, or set BACKSTAY_APP")
    return chosen


def _import_app(named: str) -> "Backstay":
    from backstay.app import Backstay

    module_name, colon, attribute = named.partition(":")
    if not (colon and attribute and all(part.isidentifier() for part in module_name.split("."))):
        raise UsageError(f"{named!r} is not the name of an application", hint=_FORM)
    found = import_attribute(named)
    if not isinstance(found, Backstay):
        raise UsageError(f"{named} is a {type(found).__name__}, not a Backstay application", hint=_FORM)
    return found


def import_attribute(named: str, hint: str | None = None) -> Any:
    """The object that MODULE:NAME names. Without a hint, the error lists the applications in the module."""
    module_name, _, attribute = named.partition(":")
    found: Any = _import_module(module_name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{module_name} has no {attribute!r}", hint=hint or _apps_in(found))
        found = getattr(found, part)
    return found


def _import_module(name: str) -> Any:
    """Imports from the working folder too; an error inside the module is reported in one line."""
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(
                f"there is no module {error.name!r}", hint="run the command in the folder of your code"
            ) from error
        raise UsageError(
            f"{name} needs the module {error.name!r}, which is missing", hint="install that module"
        ) from error
    except BackstayError as error:
        raise UsageError(f"{name} cannot be imported: {error.message}", hint=error.hint) from error
    except (Exception, SystemExit) as error:
        said = f"{name} cannot be imported: {type(error).__name__}: {error}"
        raise UsageError(said, hint="to see the traceback, run it again with BACKSTAY_DEBUG=1") from error


def _apps_in(module: Any) -> str:
    from backstay.app import Backstay

    names = [name for name, value in vars(module).items() if isinstance(value, Backstay)]
    return f"the module has {', '.join(names)}" if names else "the module has no Backstay object"


def person() -> str:
    """The name of the person who runs the command, as the system knows it."""
    from getpass import getuser

    try:
        return getuser()
    except (KeyError, OSError):  # a container may run as a number without a name
        return f"uid {os.getuid()}"
