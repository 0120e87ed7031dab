"""Lines are numbered, decoded and read as JSON; a member's text stands where it says."""

import io
import json
import os
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.callbacks import NESTING_MAX
from backstay.core.errors import UsageError
from backstay.llm import lines
from backstay.llm.lines import (
    LineRefused,
    LlmRequest,
    members,
    number_lines,
    open_lines,
    seal,
    text_of,
    unseal,
    value_of,
)

TEXTS = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
SPACE = st.text(" \t\r\n", max_size=3)


@st.composite
def objects(draw: st.DrawFn) -> tuple[str, list[tuple[str, object, str]]]:
    """An object as somebody may have written it, and its members: key, value, and the value's own text."""
    expected, pieces = [], []
    for key, value in draw(st.lists(st.tuples(TEXTS, VALUES), max_size=5)):
        text = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
        spelled = json.dumps(key, ensure_ascii=draw(st.booleans()))
        pieces.append(f"{draw(SPACE)}{spelled}{draw(SPACE)}:{draw(SPACE)}{text}{draw(SPACE)}")
        expected.append((key, value, text))
    inside = ",".join(pieces) if pieces else draw(SPACE)
    return f"{{{inside}}}", expected


@given(objects())
def test_every_member_is_found_with_its_own_text(made: tuple[str, list[tuple[str, object, str]]]) -> None:
    text, expected = made
    found = members(text)
    assert [(m.key, m.value, text[m.start : m.end]) for m in found] == expected
    assert all(json.loads("{" + text[m.at : m.end] + "}") == {m.key: m.value} for m in found)


@given(objects(), TEXTS, TEXTS)
def test_a_body_comes_out_of_the_envelope_byte_for_byte(
    made: tuple[str, list[tuple[str, object, str]]], custom_id: str, url: str
) -> None:
    request = LlmRequest(custom_id, url, made[0])
    assert unseal(seal(request)) == request
    assert json.loads(seal(request))["body"] == json.loads(made[0])


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,}',
        '{"a" 1}',
        '{"a":}',
        "{a:1}",
        '{"a":1 "b":2}',
        '{"a":1}}',
        '{"a":1} x',
        '{"a":1',
        "{",
        '{"a\\":1}',
        "{,}",
    ],
)
def test_what_is_no_json_has_no_members(text: str) -> None:
    with pytest.raises(LineRefused, match="is not JSON"):
        members(text)


@given(objects(), st.data())
def test_members_and_the_parser_agree_on_what_is_json(
    made: tuple[str, list[tuple[str, object, str]]], data: st.DataObject
) -> None:
    text, _ = made
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.sampled_from(["", ",", '"', "}", "{", ":", "\\"])) + text[at + 1 :]
    try:
        whole = json.loads(damaged)
    except ValueError:
        whole = None
    if isinstance(whole, dict) and damaged.startswith("{") and damaged.endswith("}"):
        assert {member.key: member.value for member in members(damaged)} == whole
    else:
        with pytest.raises(LineRefused):
            members(damaged)


@pytest.mark.parametrize("text", ["[1]", "1", '"a"', "null"])
def test_only_an_object_has_members(text: str) -> None:
    with pytest.raises(LineRefused, match="is not a JSON object"):
        members(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("NaN", "is not JSON: NaN is not a JSON number"),
        ("[-Infinity]", "is not JSON: -Infinity is not a JSON number"),
        ("{'a': 1}", "is not JSON: Expecting property name enclosed in double quotes at column 2"),
        ("1 2", "is not JSON: Extra data at column 2"),
        ('"\x01"', "is not JSON: Invalid control character at column 2"),
        ("[" * 100_000, f"is nested more than {NESTING_MAX} levels deep"),
        ("9" * 5000, "is not JSON: Exceeds the limit"),
        ("", "is not JSON: Expecting value at column 1"),
    ],
)
def test_what_is_wrong_is_said(text: str, says: str) -> None:
    with pytest.raises(LineRefused) as refused:
        value_of(text)
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize("text", ["1e400", "-0.0", '"\\ud800"', "12345678901234567890123", '{"a":1,"a":2}'])
def test_odd_json_is_json(text: str) -> None:
    assert value_of(text) == json.loads(text)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_has_the_same_bound_wherever_it_is_read_from(opening: str, closing: str) -> None:
    deepest = opening * NESTING_MAX + "1" + closing * NESTING_MAX
    value_of(deepest.replace("1", '"' + "x" * 600 + '"'))
    with pytest.raises(LineRefused, match="levels deep"):
        value_of(f"{opening}{deepest}{closing}")
    assert value_of("[" + ",".join(["[[]]"] * 1000) + "]")


@given(TEXTS)
def test_text_is_quoted_as_json(text: str) -> None:
    assert json.loads(lines.quote_json(text)) == text


def test_half_a_pair_of_surrogates_is_quoted_so_that_it_can_be_sent() -> None:
    assert json.loads(lines.quote_json("é\ud800").encode()) == "é\ud800"


def test_lines_are_numbered_whatever_ends_them() -> None:
    found = list(number_lines(io.BytesIO(b"a\r\n\r\nb\n\nc")))
    assert found == [(1, b"a\r\n"), (2, b"\r\n"), (3, b"b\n"), (4, b"\n"), (5, b"c")]


def test_a_line_that_is_too_long_is_passed_over_and_the_next_is_not() -> None:
    found = list(
        number_lines(io.BytesIO(b"x" * 10 + b"\n" + b"y" * 11 + b"\n" + b"z" * 3_000_000 + b"\nlast"), bytes_max=10)
    )
    assert found == [(1, b"x" * 10 + b"\n"), (2, None), (3, None), (4, b"last")]


def test_text_has_no_space_and_no_mark_around_it() -> None:
    assert text_of(b"\xef\xbb\xbf  {} \t\r\n") == "{}"
    assert text_of(b" \t\r\n") == ""
    with pytest.raises(LineRefused, match="is not UTF-8: invalid start byte at byte 2"):
        text_of(b'"\xff"')


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*nothing: No such file"), open_lines(str(tmp_path / "nothing")):
        raise AssertionError("it was opened")


def test_a_pipe_can_be_read_twice(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"1\n2\n",))
    writer.start()
    with open_lines(str(pipe)) as file:
        first = file.read()
        file.seek(0)
        assert first == file.read() == b"1\n2\n"
    writer.join()


def test_stdin_can_be_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1\n")))
    with open_lines("-") as file:
        first = file.read()
        file.seek(0)
        assert first == file.read() == b"1\n"
