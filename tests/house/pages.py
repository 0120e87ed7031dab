"""The pages for readers, and the blocks of code on them."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.house.sources import ROOT

README = "README.md"
# The mark is a comment right before the block, so that readers do not see it.
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+?) -->\n)?"
    r"```(?P<kind>\w*)(?: title=\"(?P<title>[^\"\n]+)\")?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
FENCE = re.compile(r"^\s*```", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    kind: str
    title: str | None  # the name of the file that it is
    text: str
    why_not_run: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def page_names() -> list[str]:
    return [README, *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]


def page_text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks_of(text: str, page: str = "") -> list[Block]:
    return [
        Block(page, text.count("\n", 0, found.start("kind")) + 1, *found.group("kind", "title", "text", "why"))
        for found in BLOCK.finditer(text)
    ]


def blocks(page: str) -> list[Block]:
    return blocks_of(page_text(page), page)


def provider_pages(*, with_practice: bool) -> tuple[str, ...]:
    """The pages about providers: those that start a practice provider themselves, or the others."""
    named = [name for name in page_names() if name.startswith("docs/providers/")]
    starts = {name: any("backstay practice" in block.text for block in blocks(name)) for name in named}
    return tuple(name for name, found in starts.items() if found is with_practice)


def all_blocks() -> list[Block]:
    return [block for page in page_names() for block in blocks(page)]


def fences(text: str) -> int:
    return len(FENCE.findall(text))


def exists(path: str) -> bool:
    return Path(ROOT / path).exists()
