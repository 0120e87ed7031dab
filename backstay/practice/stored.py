"""Completions that were made with store: true, to be listed by their metadata."""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiohttp import web

from backstay.practice.gate import Gate
from backstay.practice.pages import Paging, page
from backstay.practice.refusals import Reply, not_found, reply_with

_PAIR = re.compile(r"metadata\[(.+)\]")


class Completion(NamedTuple):
    id: str
    text: str
    model: str
    metadata: dict[str, str]
    visible_at: float

    def dump(self) -> dict[str, Any]:
        return {**json.loads(self.text), "metadata": self.metadata}


class Stored:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._completions: dict[str, Completion] = {}
        self._by_pair: dict[tuple[str, str], list[str]] = {}

    def add(self, text: str, body: Mapping[str, Any]) -> None:
        metadata = body.get("metadata") or {}
        name = json.loads(text)["id"]
        visible_at = self._gate.clock.monotonic() + self._gate.faults.visible_after
        self._completions[name] = Completion(name, text, body["model"], metadata, visible_at)
        for pair in metadata.items():
            self._by_pair.setdefault(pair, []).append(name)

    async def list_(self, request: web.Request) -> Reply:
        """The oldest first; `metadata[key]=value` and `model` choose among them."""
        pairs = [(found[1], value) for name, value in request.query.items() if (found := _PAIR.fullmatch(name))]
        names = self._by_pair.get(pairs[0], ()) if pairs else self._completions
        now, model = self._gate.clock.monotonic(), request.query.get("model")
        chosen = [
            each
            for each in map(self._completions.get, names)
            if each is not None
            and each.visible_at <= now
            and (model is None or each.model == model)
            and all(each.metadata.get(key) == value for key, value in pairs)
        ]
        return page(chosen, Paging.read(request.query, limit_max=100, order="asc"))

    async def show(self, request: web.Request) -> Reply:
        return reply_with(self._found(request).dump())

    async def remove(self, request: web.Request) -> Reply:
        found = self._found(request)
        del self._completions[found.id]
        return reply_with({"id": found.id, "object": "chat.completion.deleted", "deleted": True})

    def _found(self, request: web.Request) -> Completion:
        name = request.match_info["id"]
        if (found := self._completions.get(name)) is None:
            raise not_found("stored completion", name)
        return found
