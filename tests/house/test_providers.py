"""Only a provider's own folder knows its paths, and only providers import one another: a new provider is one folder."""

import re
from pathlib import Path

from tests.house.sources import PACKAGE, name_of, python_files

FOLDER = f"{PACKAGE}/llm/providers/"
OWN_API = f"{PACKAGE}/server/"  # the face of Backstay's own OpenAI-compatible API
STAND_IN = f"{PACKAGE}/practice/"

PATH = re.compile(r"""["'/]v1/(?:chat/completions|completions|responses|embeddings|files|batches|models)\b""")
IMPORT = re.compile(rf"^\s*(?:from|import) {PACKAGE}\.llm\.providers\.\w", re.MULTILINE)
HELP = re.compile(r"^_ENDPOINT = .*$", re.MULTILINE)  # an example in the help of --endpoint


def sources() -> list[tuple[str, str]]:
    return [
        (name, path.read_text()) for path in python_files(PACKAGE) if not (name := name_of(path)).startswith(FOLDER)
    ]


def knows_a_path(source: str) -> bool:
    return PATH.search(HELP.sub("", source)) is not None


def test_no_other_file_knows_a_path_of_openai() -> None:
    others = [(name, source) for name, source in sources() if not name.startswith((OWN_API, STAND_IN))]
    assert [name for name, source in others if knows_a_path(source)] == []


def test_only_our_own_openai_api_imports_a_provider() -> None:
    found = [name for name, source in sources() if IMPORT.search(source)]
    assert [name for name in found if not name.startswith(f"{OWN_API}openai/")] == []


def test_a_path_and_an_import_are_found() -> None:
    assert knows_a_path('CHAT = "/v1/chat/completions"')
    assert not knows_a_path('url = "/v1/messages"')
    assert IMPORT.search("    from backstay.llm.providers.openai.requests import CHAT\n")


def test_the_top_of_llm_stays_small() -> None:
    modules = [path.name for path in python_files(f"{PACKAGE}/llm") if Path(name_of(path)).parent.name == "llm"]
    assert len(modules) - 1 <= 24, modules
