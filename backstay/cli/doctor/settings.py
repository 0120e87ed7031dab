"""Settings: their values, where each came from, and variables that look like settings but are not."""

import difflib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from backstay.cli.doctor.finding import Finding, Setup, ok, warn

if TYPE_CHECKING:
    from backstay.settings import Settings

OTHERS: Final = frozenset({"CONFIG", "DEBUG", "CHILD_DATABASE_URL"})  # variables of ours that are no settings


async def settings(setup: Setup) -> AsyncIterator[Finding]:
    """Every setting that is not at its default, with where it came from; and variables that are no setting."""
    from backstay import settings as settings_module

    loaded = setup.settings
    loaded.bounds()
    yield ok(f"profile {loaded.profile}, owner {loaded.owner}")
    origins = settings_module.origins(setup.environ)
    for name, value in sorted(_changed(loaded).items()):
        if name != "database_url":  # the database's own line says it
            yield ok(f"{name} is {shown(name, value)}, from {origins.get(name, 'a flag or the application')}")
    for variable in settings_module.unknown_variables(setup.environ):
        if variable.removeprefix(settings_module.PREFIX) not in OTHERS:
            yield _unknown(variable)


def _changed(loaded: "Settings") -> dict[str, Any]:
    """By name, a single bound as limits.NAME."""
    plain = {name: getattr(loaded, name) for name in type(loaded).model_fields if name != "limits"}
    defaults = {name: field.default for name, field in type(loaded).model_fields.items()}
    changed = {name: value for name, value in plain.items() if value != defaults[name]}
    return {**changed, **{f"limits.{name}": value for name, value in loaded.limits.items()}}


def shown(name: str, value: Any) -> str:
    """A setting for people: secrets are hidden, and URLs are shown without user and password."""
    from backstay.settings import Settings
    from backstay.store import urls

    text = str(value)
    if "://" in text:
        return urls.shown(text)
    field = Settings.model_fields.get(name)
    return "set, and not shown" if field is not None and not field.repr else text


def _unknown(variable: str) -> Finding:
    from backstay.settings import variables

    known = variables()
    close = [one for one in known if one.startswith(variable)] or difflib.get_close_matches(variable, known, 1, 0.8)
    meant = f"did you mean {close[0]}? " if close else ""
    return warn(f"{variable} is not a setting and is ignored", f"{meant}docs/settings.md lists them all")
