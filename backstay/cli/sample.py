"""`backstay run --try`: shows the first answers and what all would cost, and asks before the rest is sent."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from backstay.cli import output
from backstay.core.display import show_money, visible

if TYPE_CHECKING:
    from backstay.client import Client
    from backstay.run.run import TriedRequest
    from backstay.run.submission import AtEnd
    from backstay.run.summary import Summary

SHOWN_CHARACTERS_MAX = 2_000


class Sample:
    """The first requests of a run, read when they have ended."""

    def __init__(self, first: int, then: "AtEnd | None") -> None:
        self._first = first
        self._then = then
        self.tried: Sequence[TriedRequest] = ()

    async def __call__(self, client: "Client", summary: "Summary") -> "Summary":
        from backstay.run.run import read_tried

        self.tried = await read_tried(client, summary.job_id, self._first)
        return summary if self._then is None else await self._then(client, summary)

    def agree(self, summary: "Summary", yes: bool, as_json: bool) -> bool:
        """Shows what came back, and whether the rest may be sent: by the option, or by the person at the terminal."""
        rest = self._forecast(summary)
        if as_json:
            tried = [each._asdict() for each in self.tried]
            output.data(
                output.as_json({"event": "tried", "requests": tried, "rest_micros": rest, "left": summary.left})
            )
        else:
            self._show(summary, rest)
        if yes or as_json or not sys.stdin.isatty():
            if not yes:
                output.note(f"To send the other {summary.left:,}, run the same command without --try.")
            return yes
        about = "" if rest is None else f" for about {show_money(rest)}"
        return click.confirm(f"Send the other {summary.left:,}{about}?", default=False, err=True)

    def _forecast(self, summary: "Summary") -> int | None:
        """What the rest costs if it is like these; None: nobody knows."""
        if summary.spent_micros is None or not self.tried:
            return None
        return round(sum(each.cost_micros or 0 for each in self.tried) / len(self.tried) * summary.left)

    def _show(self, summary: "Summary", rest: int | None) -> None:
        from backstay.llm.bodies import object_of, prompt_text

        for each in self.tried:
            cost = "" if each.cost_micros is None else f"  {show_money(each.cost_micros)}"
            output.note(f"\n{visible(each.custom_id)}{cost}")
            output.note(_indented("> ", prompt_text(object_of(each.body)) or ""))
            output.note(_indented("  ", each.answer if each.error is None else f"failed: {each.error}"))
        if rest is not None and summary.spent_micros is not None:
            whole = show_money(summary.spent_micros + rest)
            output.note(f"\nThese cost {show_money(summary.spent_micros)}; all together about {whole}.")


def _indented(before: str, text: str | None) -> str:
    said = text or ""
    cut = said if len(said) <= SHOWN_CHARACTERS_MAX else f"{said[:SHOWN_CHARACTERS_MAX]}…"
    return "\n".join(f"{before}{visible(line)}" for line in cut.splitlines() or [""])
