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
    "text",
    [
        "Invalid URL (POST /v1/chat/completions). (unknown_url)",
        "Invalid URL (GET /foo/bar)",
        "Invalid URL (GET /v1/files?name=a.csv)",
        "this path does not exist. /api/openapi.json lists what there is; /v1/files, /v1/batches and /v1/models",
        "Resource not found: /openai/deployments/x/chat/completions?api-version=2",
        "The API deployment '/openai/deployments/my-gpt/chat/completions' does not exist",
        "unknown path /v1beta/models/gemini-2.5-flash:generateContent",
        "no such model at /v1/models/gpt-4.1/x",
        "Unknown endpoint '/embeddingss/x'",
        "No route for /foo/bar",
        "the provider redirects to /foo/bar/, where nothing is sent",
        "use /chat/completions/ or /v2/messages instead",
    ],
)
def test_a_message_keeps_the_path_of_a_url(text):
    assert one_line(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GET /home/x/app.py", "GET <path>"),
        ("POST /srv/app/handler failed", "POST <path> failed"),
        ("url /var/lib/x", "url <path>"),
        ("could not open /v1/data/x.csv", "could not open <path>"),
        ("see /v1/../../secret/x", "see <path>"),
        ('File "/openai/app.py", line 3', 'File "<path>", line 3'),
        ("OSError: [Errno 2] No such file or directory: '/api/uploads/x'", None),
        ("PermissionError: [Errno 13] Permission denied: '/v1/data/x'", None),
        ("weights are missing in /models/llama/shards", "weights are missing in <path>"),
        ("/app/main failed", "<path> failed"),
        ("the url is /Users/bob/x", "the url is <path>"),
        ("POST ~/x/y", "POST <path>"),
        (r"endpoint C:\Users\bob", "endpoint <path>"),
    ],
)
def test_a_path_of_a_file_is_hidden_also_where_a_url_could_stand(text, expected):
    assert one_line(text) == (expected or text.partition("'")[0] + "'<path>'")


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
