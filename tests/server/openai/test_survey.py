"""What is found in a file of requests while it comes in, however it is cut into pieces."""

import json

import pytest

from backstay.llm.lines import LinePart, LineRefused
from backstay.server.openai import survey as module
from backstay.server.openai.survey import LineCutter, Repeats, Survey, fault_of
from tests.server.openai.openai_rig import CHAT, line, requests


def seen(content: bytes, size: int) -> Survey:
    survey = Survey()
    for start in range(0, len(content), size):
        survey.feed(content[start : start + size])
    survey.end()
    return survey


@pytest.mark.parametrize("size", [1, 7, 1_000, 1 << 20])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n\r\n"])
def test_the_same_is_found_in_whatever_pieces_it_comes(size: int, end: bytes) -> None:
    lines = [line("a"), "", line("b", model="other"), "{", line("c")]
    told = seen("\r\n".join(lines).encode() + end, size).dump("digest")
    assert told["requests"] == 3
    assert told["urls"] == {CHAT: [3, [1, 3, 5]]}
    assert told["models"] == {"practice": 1, "other": 3}
    assert [(fault.code, fault.line) for fault in told["faults"]] == [("invalid_json_line", 4)]
    assert json.loads(json.dumps(told))["fault_count"] == 1


def test_ids_that_come_again_are_named_with_their_lines() -> None:
    content = "\n".join([line("a"), line("b"), line("a"), line("c"), line("b"), line("a")]).encode()
    survey = Survey()
    survey.feed(content)
    assert survey.end() is True
    repeats = Repeats(survey)
    for start in range(0, len(content), 50):
        repeats.feed(content[start : start + 50])
    repeats.end()
    assert repeats.found == [(3, 1, "a"), (5, 2, "b"), (6, 1, "a")]
    assert seen(requests(1_000), 4_096).end() is False


def test_a_line_without_end_is_refused_before_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_BYTES_MAX", 1_000)
    lines = LineCutter()
    lines.feed(b"x" * 999)
    with pytest.raises(LineRefused, match="more than 1,000 bytes"):
        lines.feed(b"x" * 2)


def test_memory_hardly_grows_with_the_kinds_in_a_file() -> None:
    survey = Survey()
    for number in range(3_000):
        survey.feed(f"{line(str(number), url=f'/v1/{number}', model=f'model {number}')}\n".encode())
    told = survey.dump("")
    assert len(told["urls"]) == module.URLS_MAX + 1
    assert sum(count for count, _ in told["urls"].values()) == 3_000
    assert len(told["models"]) == module.MODELS_MAX


def test_a_models_name_is_one_that_every_database_takes() -> None:
    told = seen(line("a", model="x\x00\ud800/models/y").encode(), 100).dump("")
    assert list(told["models"]) == ["x/models/y"]


@pytest.mark.parametrize(
    ("part", "code", "param"),
    [
        (LinePart.MODEL, "invalid_request", "body.model"),
        (LinePart.URL, "invalid_url", "url"),
        (LinePart.CUSTOM_ID, "invalid_value", "custom_id"),
        (LinePart.JSON, "invalid_json_line", None),
        (None, "invalid_request", None),
    ],
)
def test_a_fault_is_told_by_the_part_that_was_refused_and_not_by_its_words(
    part: LinePart | None, code: str, param: str | None
) -> None:
    whole = '{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"m"}}'
    fault = fault_of(whole, LineRefused("is wrong in any words", part), 7)
    assert (fault.code, fault.line, fault.param) == (code, 7, param)
