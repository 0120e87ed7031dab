"""Texts that know their moments and commands, and are plain texts to everybody else."""

import json
import pickle

from backstay.core.display import NextCommand, Sentence, TimePoint, parts_of
from backstay.core.errors import SchemaBehind

NOW = 1_714_564_800_000  # 2024-05-01 12:00:00 UTC


def test_a_sentence_is_a_plain_text_to_everybody_else() -> None:
    made = Sentence("waits until ", TimePoint(NOW + 90_000, NOW), "; run `", NextCommand("migrate"), "`")
    assert made == "waits until 2024-05-01 12:01:30 UTC (in 90 s); run `backstay migrate`"
    assert json.loads(json.dumps({"text": made})) == {"text": str(made)}
    assert pickle.loads(pickle.dumps(made)).parts == made.parts


def test_a_sentence_in_a_sentence_keeps_its_parts() -> None:
    inner = Sentence(" since ", TimePoint(NOW, NOW))
    assert Sentence("held", inner, "!").parts == ("held", " since ", TimePoint(NOW, NOW), "!")


def test_what_looks_like_a_moment_or_a_command_is_none() -> None:
    text = "2024-05-01 12:00:00 UTC: run backstay migrate"
    assert parts_of(text) == (text,)


def test_the_hint_of_an_old_schema_knows_its_command() -> None:
    assert NextCommand("migrate") in parts_of(SchemaBehind().hint)
