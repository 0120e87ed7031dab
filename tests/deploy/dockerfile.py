"""The Dockerfile, instruction by instruction."""

import json

from tests.deploy.configuration import DEPLOY

FILE = DEPLOY / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    text = FILE.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    return [(words[0], words[2]) for line in lines if line and line[0] != "#" and (words := line.partition(" "))]


def said(name: str) -> list[str]:
    return [rest for word, rest in instructions() if word == name]


def words(name: str) -> list[str]:
    """The words of an instruction that starts a program."""
    (rest,) = said(name)
    found: list[str] = json.loads(rest[rest.index("[") :])
    return found
