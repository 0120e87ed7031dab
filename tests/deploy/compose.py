"""The compose file as Docker would read it."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from tests.deploy.configuration import DEPLOY

FILE = DEPLOY / "compose.yaml"
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)(?::([-?])([^}]*))?\}")


def read(environment: Mapping[str, str]) -> dict[str, Any]:
    """With its variables in place; one that must be set and is not is a KeyError."""

    def value(found: re.Match[str]) -> str:
        name, kind, rest = found.groups()
        return environment.get(name) or (rest if kind == "-" else environment[name])

    def filled(part: Any) -> Any:
        match part:
            case dict():
                return {key: filled(one) for key, one in part.items()}
            case list():
                return [filled(one) for one in part]
            case str():
                return _VARIABLE.sub(value, part).replace("$$", "$")
            case _:
                return part

    read: dict[str, Any] = filled(yaml.safe_load(FILE.read_text(encoding="utf-8")))
    return read


def variables() -> dict[str, bool]:
    """The variables that it takes, and whether they have to be set."""
    found = _VARIABLE.findall(FILE.read_text(encoding="utf-8"))
    return {name: any(kind == "?" for other, kind, _ in found if other == name) for name, _, _ in found}


def example() -> dict[str, str]:
    lines = (DEPLOY / "example.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def ours(composed: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, one) for name, one in composed["services"].items() if one["image"] == "backstay"]


FILLED = {name: "x" * 40 for name, needed in variables().items() if needed}
