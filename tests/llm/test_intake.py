"""The survey of a file of requests, and the stream of those that it found good."""

import tracemalloc
from pathlib import Path

import pytest

from backstay.core.errors import UsageError
from backstay.llm import intake, repeated_requests
from backstay.llm.formats import InputOptions, OnlyPath, ParsedRequest
from backstay.llm.intake import BAD_LINES_SHOWN_MAX, KINDS_MAX, open_source, requests, survey
from tests.llm.request_files import BODY, Write, batch_line, look


@pytest.mark.parametrize("content", ["", "\n\r\n", "\ufeff"])
def test_a_file_without_requests_is_refused(write: Write, content: str) -> None:
    with pytest.raises(UsageError, match=r"there are no requests in .*requests\.jsonl"):
        look(write(content))


def test_a_survey_counts_what_there_is(write: Write) -> None:
    bodies = ['{"model":"é"}', '{"model":"é"}', '{"model":"m"}', '{"model":"m"}']
    urls = ["/v1/x", "/v1/y", "/v1/x", "/v1/x"]
    surveyed = look(
        write("\n".join(batch_line(str(i), *pair) for i, pair in enumerate(zip(bodies, urls, strict=True))))
    )
    assert surveyed.requests == 4
    assert surveyed.bytes == sum(len(body.encode()) for body in bodies)
    assert surveyed.models == {"é": 2, "m": 2}
    assert surveyed.urls == {"/v1/x": 3, "/v1/y": 1}


def test_kinds_without_end_are_counted_together(write: Write) -> None:
    body = '{"model":"m%d"}'
    surveyed = look(write("\n".join(batch_line(str(i), body % i, "/v1/x") for i in range(KINDS_MAX + 50))))
    assert len(surveyed.kinds) == KINDS_MAX + 1
    assert surveyed.models["(others)"] == 50


def test_every_bad_line_counts_and_the_first_are_named(write: Write) -> None:
    surveyed = look(write("oops\n" * 250 + batch_line()))
    assert (surveyed.requests, surveyed.bad_count, len(surveyed.bad)) == (1, 250, BAD_LINES_SHOWN_MAX)
    assert surveyed.describe(surveyed.bad[-1]) == "line 100 is not JSON: Expecting value at column 1"


def test_what_the_lane_cannot_send_is_a_bad_line(write: Write) -> None:
    lines = [batch_line("a", BODY, url) for url in ("/v1/chat/completions", "/v1/responses", "/v1/responses")]
    only = OnlyPath("/v1/responses", "--lane background")
    with open_source(write("\n".join(lines)), InputOptions(only=only)) as source:
        surveyed = survey(source)
        assert list(map(surveyed.describe, surveyed.bad)) == [
            "line 1 is for /v1/chat/completions; --lane background takes /v1/responses only",
            "line 3 has the custom_id of line 2 again",
        ]
        assert [found.line for found in requests(source, surveyed)] == [2]
    with open_source(write("prompt\nx\n", "rows.csv"), InputOptions(model="m", only=only)) as source:
        assert survey(source).bad_count == 1


def test_the_digest_is_of_what_would_be_sent(write: Write) -> None:
    one, two = batch_line("a"), batch_line("b")
    digest = look(write(f"{one}\n{two}")).digest
    assert look(write(f"{one}\noops\n{two}")).digest == digest
    assert look(write(f"{two}\n{one}")).digest != digest
    assert look(write(one)).digest != digest
    assert look(write(f"{one}\n{batch_line('c')}")).digest != digest
    assert look(write(f"{one}\n{batch_line('b', BODY + ' ')}")).digest == digest
    assert look(write(f"{one}\n{batch_line('b', BODY.replace(':', ': '))}")).digest != digest
    prompts = write('{"prompt": "x"}')
    assert look(prompts, InputOptions(model="m")).digest != look(prompts, InputOptions(model="n")).digest


def test_an_id_that_comes_again_is_named_with_where_it_was_first(write: Write) -> None:
    names = ["a", "b", "a", "c", "b", "a"]
    lines = [batch_line(name, f'{{"model":"{at}"}}', "/v1/x") for at, name in enumerate(names)]
    with open_source(write("\n".join(lines)), InputOptions()) as source:
        surveyed = survey(source)
        streamed = [(one.line, one.request.custom_id) for one in requests(source, surveyed)]
    assert streamed == [(1, "a"), (2, "b"), (4, "c")]
    assert [surveyed.describe(bad) for bad in surveyed.bad] == [
        "line 3 has the custom_id of line 1 again",
        "line 5 has the custom_id of line 2 again",
        "line 6 has the custom_id of line 1 again",
    ]
    assert surveyed.models == {"0": 1, "1": 1, "3": 1}
    assert surveyed.digest == look(write("\n".join((lines[0], lines[1], lines[3])))).digest


def test_an_id_on_a_bad_line_is_free(write: Write) -> None:
    bad = batch_line("a", '{"model":"m","stream":true}')
    surveyed = look(write(f"{bad}\n{batch_line('a')}\n{bad}"))
    assert surveyed.requests == 1
    assert [bad.line for bad in surveyed.bad] == [1, 3]


def test_ids_that_only_look_alike_are_told_apart(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every hash is the same here, as if all ids collided."""
    monkeypatch.setattr(repeated_requests, "hash", lambda text: 7, raising=False)
    names = [f"n{at % 900}" for at in range(1000)]
    surveyed = look(write("\n".join(map(batch_line, names))))
    assert (surveyed.requests, surveyed.bad_count) == (900, 100)
    assert surveyed.bad[0][:2] == (901, "has the custom_id of line 1 again")


def test_a_tally_starts_afresh_when_ids_repeat(write: Write) -> None:
    class Bodies:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def add(self, parsed: ParsedRequest) -> None:
            self.seen.append(parsed.custom_id)

        def clear(self) -> None:
            self.seen.clear()

    tally = Bodies()
    with open_source(write("\n".join(map(batch_line, "abab"))), InputOptions()) as source:
        survey(source, tally)
    assert tally.seen == ["a", "b"]


def test_what_is_written_to_the_file_after_the_survey_is_not_sent(write: Write) -> None:
    file = write(batch_line("a") + "\n")
    with open_source(file, InputOptions()) as source:
        surveyed = survey(source)
        with open(file, "a") as more:
            more.write(batch_line("b") + "\n")
        assert [one.request.custom_id for one in requests(source, surveyed)] == ["a"]


def test_a_file_that_changed_under_the_reader_is_noticed(write: Write) -> None:
    file = write(batch_line("a") + "\n" + batch_line("b") + "\n")
    with open_source(file, InputOptions()) as source:
        surveyed = survey(source)
        Path(file).write_text(batch_line("a") + "\n" + batch_line("c") + "\n")
        with pytest.raises(UsageError, match="was changed while it was read"):
            list(requests(source, surveyed))


def test_memory_hardly_grows_with_the_file(tmp_path: Path) -> None:
    def peak(lines: int) -> int:
        file = tmp_path / f"{lines}.jsonl"
        with file.open("w") as written:
            written.writelines(batch_line(f"request-{at}") + "\n" for at in range(lines))
        tracemalloc.start()
        with open_source(str(file), InputOptions()) as source:
            surveyed = survey(source)
            assert sum(1 for _ in requests(source, surveyed)) == lines
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    # Eight bytes an id, and what an array keeps in reserve; the file itself has 120 a line.
    assert peak(12_000) - peak(2_000) < 10_000 * 12


@pytest.mark.parametrize(("requests_max", "bytes_max"), [(2, 1 << 20), (1_000, 75)])
def test_nothing_is_taken_of_a_part_of_the_file_that_has_changed(
    write: Write, monkeypatch: pytest.MonkeyPatch, requests_max: int, bytes_max: int
) -> None:
    monkeypatch.setattr(intake, "CHECKED_REQUESTS", requests_max)
    monkeypatch.setattr(intake, "CHECKED_BYTES", bytes_max)
    lines = [f"{batch_line(name)}\n" for name in "abcdef"]
    file = write("".join(lines))
    with open_source(file, InputOptions()) as source:
        surveyed = survey(source)
        lines[3] = f"{batch_line('z')}\n"
        Path(file).write_text("".join(lines))
        taken: list[str] = []
        with pytest.raises(UsageError, match="was changed while it was read"):
            taken.extend(one.request.custom_id for one in requests(source, surveyed))
    assert taken == ["a", "b"]


def test_a_table_whose_header_has_changed_under_the_reader_is_noticed(write: Write) -> None:
    file = write("prompt\nWhy?\n", "rows.csv")
    with open_source(file, InputOptions(model="m")) as source:
        surveyed = survey(source)
        Path(file).write_text("words\nWhy?\n")
        with pytest.raises(UsageError, match="was changed while it was read"):
            list(requests(source, surveyed))
