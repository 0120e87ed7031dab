"""The one line that is shown for a failure: printable, short, without paths or secrets."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.failures import ErrorCode, Failure, FailureKind, failure_of_status, one_line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it broke", "it broke"),
        ("\n\n  first \t line \nsecond", "first line"),
        ("-----\n{\nthe reason", "the reason"),
        ("a\x00b\x07c\x7f", "abc"),
        ("a\ud800b", "ab"),
        ("a\u2028b", "a"),
        ("\x1b[1;31mred\x1b[0m and \x1b]0;title\x07plain", "red and plain"),
        ("safe\u202egpj.exe\u2066", "safegpj.exe"),
        ("", ""),
        ("\n\x00\n", ""),
        ("---", "---"),
        ("größe 文字 🙂", "größe 文字 🙂"),
    ],
)
def test_a_message_is_the_first_line_that_says_something_in_plain_characters(text, expected):
    assert one_line(text) == expected


def test_of_a_stack_trace_only_the_error_itself_is_shown():
    trace = (
        'Traceback (most recent call last):\n  File "/srv/app/x.py", line 3, in f\n    y()\nValueError: bad page 3\n'
    )
    assert one_line(trace) == "ValueError: bad page 3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No such file: '/srv/my files/a.pdf'", "No such file: '<path>'"),
        ("cannot read /srv/uploads/a.pdf now", "cannot read <path> now"),
        ("error:/var/log/x", "error:<path>"),
        ("root=/etc", "root=<path>"),
        ("in (/opt/app/main.py:32)", "in (<path>:32)"),
        ("queue 'q' in vhost '/' is gone", "queue 'q' in vhost '/' is gone"),
        ("~/.ssh/id_rsa unreadable", "<path> unreadable"),
        (r"open C:\Users\Bob\a.txt failed", "open <path> failed"),
        (r"open 'C:\\Users\\Bob B\\a.txt' failed", "open '<path>' failed"),
        (r"\\nas\share\x is away", "<path> is away"),
        ("file:///home/x/y is gone", "<path> is gone"),
        ("sqlite:////var/lib/jobs.db is locked", "<path> is locked"),
        ("GET https://api.example.com/v1/chat failed", "GET https://api.example.com/v1/chat failed"),
        ("either/or on 2024/01/02", "either/or on 2024/01/02"),
    ],
)
def test_a_message_shows_no_path_of_the_server_and_leaves_urls_alone(text, expected):
    assert one_line(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Incorrect API key provided: sk-abc1234567890", "Incorrect API key provided: <secret>"),
        ("sent Bearer abc.def", "sent Bearer <secret>"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: <secret>"),
        ("GET https://x.example/v1?key=abc&page=2", "GET https://x.example/v1?key=<secret>&page=2"),
        ("x-api-key: zzz", "x-api-key: <secret>"),
        ('{"password": "two words", "page": 1}', '{"password": <secret>, "page": 1}'),
        ("postgresql://me:p@ss/word@db:5432/x", "postgresql://<secret>@db:5432/x"),
        ("amqp://guest@broker/", "amqp://<secret>@broker/"),
        ("max_tokens=4096 is too many", "max_tokens=4096 is too many"),
        ("missing key: name", "missing key: name"),
        ("a Bearer token is required", "a Bearer token is required"),
    ],
)
def test_a_message_shows_no_secret_and_keeps_what_is_none(text, expected):
    assert one_line(text) == expected


@pytest.mark.parametrize(
    ("length_max", "expected"), [(10, "0123456789"), (9, "01234567…"), (1, "…"), (0, ""), (-1, "")]
)
def test_a_long_message_ends_in_an_ellipsis_within_its_cap(length_max, expected):
    assert one_line("0123456789", length_max) == expected


ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.text("\x1b[];:/\\'\"=@~ \n\r\x00aCk.-\ud800\u202e")


@given(ANY_TEXT, st.integers(0, 400))
def test_any_text_becomes_one_short_printable_line(text, length_max):
    line = one_line(text, length_max)
    assert len(line) <= length_max
    assert len(line.splitlines()) <= 1
    assert not {unicodedata.category(character) for character in line} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    line.encode("utf-8")


@given(st.lists(st.text("abcdefgh_", min_size=1, max_size=9), min_size=2, max_size=6), st.sampled_from(["", "'", '"']))
def test_no_absolute_path_survives_wherever_it_stands(parts, quote):
    path = "/" + "/".join(parts)
    assert path not in one_line(f"could not open {quote}{path}{quote}")


@given(st.integers(-1, 1_000), ANY_TEXT)
def test_every_failure_has_a_public_code_and_a_safe_message(status, text):
    failure = failure_of_status(status, text)
    assert isinstance(failure.code, ErrorCode)
    assert isinstance(failure.kind, FailureKind)
    assert len(failure.message) <= 300


def test_a_failure_made_by_hand_has_a_safe_message_too():
    failure = Failure(ErrorCode.IO_ERROR, FailureKind.INFRASTRUCTURE, "no /srv/uploads/a.pdf\n  at line 3")
    assert failure.message == "no <path>"
