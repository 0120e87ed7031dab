"""A released revision never changes: databases out there were made by it."""

import ast

import pytest

from backstay.store.databases import schema
from tests.upgrades.kept import DIGEST, digest_of, file_of, revision_file

ADVICE = "a revision that was released never changes: undo it, and write a new one (CONTRIBUTING.md, Migrations)"
LIBRARIES = ("alembic", "re", "sqlalchemy")
OWN = "backstay.store.migrations.versions.v"


@pytest.mark.parametrize("revision", schema.KNOWN)
def test_a_kept_revision_has_not_changed(revision: str) -> None:
    assert file_of(revision).exists(), "a new revision is kept with its data: run `make schema`"
    lines = file_of(revision).read_text(encoding="utf-8").splitlines()
    digests = [line.removeprefix(DIGEST) for line in lines if line.startswith(DIGEST)]
    assert digests == [digest_of(source_of(revision))], ADVICE


@pytest.mark.parametrize("revision", schema.KNOWN)
def test_a_revision_uses_no_code_that_may_change(revision: str) -> None:
    modules = set()
    for node in ast.walk(ast.parse(source_of(revision))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(str(node.module))
    assert [name for name in modules if name not in LIBRARIES and not name.startswith(OWN)] == []


def test_a_digest_is_of_what_the_code_does() -> None:
    source = '"""Doc."""\n\nX = ("a b",)  # why\n\n\ndef upgrade() -> None:\n    """Doc."""\n    op.execute(X)\n'
    other = '"""Other."""\n\n# why\nX = (\n    "a b",\n)\n\n\ndef upgrade() -> None:\n    op.execute(X)\n'
    assert digest_of(source) == digest_of(other)
    for old, new in (('"a b"', '"a c"'), ("execute", "drop"), ("upgrade", "downgrade")):
        assert digest_of(source) != digest_of(source.replace(old, new))


def source_of(revision: str) -> str:
    return revision_file(revision).read_text(encoding="utf-8")
