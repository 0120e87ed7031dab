"""What an HTTP status or an exception means for the item, and the one line that is shown for it."""

import unicodedata
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core import errors
from backstay.core.failures import (
    INNER_CODES,
    ErrorCode,
    Failure,
    FailureKind,
    error_of_failure,
    failure_of_exception,
    failure_of_status,
    one_line,
    parse_retry_after,
    public_code,
)

NOW = 1_700_000_000_000  # Tue, 14 Nov 2023 22:13:20 GMT


def verdict(failure: Failure) -> str:
    return f"{failure.code} {failure.kind}"


def exception_named(*names: str, base: type[Exception] = Exception, **attributes: object) -> Exception:
    """An exception of a client library that is not installed: only its names and attributes are known."""
    made = base
    for name in names:
        made = type(name, (made,), {})
    error = made("it broke")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


class Answer:
    def __init__(self, status_code: int, headers: object = None) -> None:
        self.status_code = status_code
        self.headers = headers


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, "GW_4XX business"),
        (401, "FORBIDDEN held"),
        (402, "FORBIDDEN held"),
        (403, "FORBIDDEN held"),
        (404, "GW_4XX business"),
        (407, "FORBIDDEN held"),
        (409, "GW_4XX business"),
        (410, "EXPIRED business"),
        (413, "TOO_LARGE business"),
        (422, "GW_4XX business"),
        (499, "GW_4XX business"),
        (500, "GW_5XX infrastructure"),
        (502, "GW_5XX infrastructure"),
        (503, "GW_5XX infrastructure"),
        (504, "GW_TIMEOUT infrastructure"),
        (599, "GW_5XX infrastructure"),
        (0, "UNKNOWN business"),
        (302, "UNKNOWN business"),
        (600, "UNKNOWN business"),
    ],
)
def test_a_status_stands_for_one_code_and_one_kind(status, expected):
    assert verdict(failure_of_status(status)) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [(408, "GW_TIMEOUT infrastructure"), (425, "GW_4XX infrastructure"), (429, "GW_4XX throttled")],
)
def test_408_425_and_429_are_retried_although_they_are_4xx(status, expected):
    assert verdict(failure_of_status(status)) == expected


@pytest.mark.parametrize("status", [429, 503])
def test_a_retry_after_travels_with_the_failure(status):
    failure = failure_of_status(status, retry_after_ms=7_000)
    assert (failure.retry_after_ms, failure.provider_status) == (7_000, status)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (429, "Error code: 429 - {'error': {'code': 'insufficient_quota'}}"),
        (400, "Your credit balance is too low to access the API"),
        (429, "x" * 1_000 + " insufficient_quota"),
    ],
)
def test_an_account_without_money_holds_the_provider_instead_of_failing_items(status, message):
    assert verdict(failure_of_status(status, message)) == "FORBIDDEN held"


def test_a_status_without_a_message_is_put_into_words():
    assert failure_of_status(429).message == "the provider answered 429 Too Many Requests"
    assert failure_of_status(599).message == "the provider answered 599"


@pytest.mark.parametrize(
    ("raised", "expected", "retry_after_ms"),
    [
        (errors.Transient("m"), "GW_5XX infrastructure", None),
        (errors.Transient("m", ErrorCode.NOT_READY, 1.5), "NOT_READY infrastructure", 1_500),
        (errors.Transient("m", retry_after_seconds=-3), "GW_5XX infrastructure", 0),
        (errors.Transient("m", retry_after_seconds=float("nan")), "GW_5XX infrastructure", None),
        (errors.Throttled("m", 20), "GW_4XX throttled", 20_000),
        (errors.Permanent("m"), "UNKNOWN business", None),
        (errors.Permanent("m", ErrorCode.NOT_PDF), "NOT_PDF business", None),
        (errors.ProviderHeld("m"), "FORBIDDEN held", None),
        (errors.OutcomeUnknown("m"), "GW_TIMEOUT unknown", None),
        (errors.HandlerError("m"), "UNKNOWN business", None),
    ],
)
def test_what_a_handler_raises_on_purpose_is_taken_at_its_word(raised, expected, retry_after_ms):
    failure = failure_of_exception(raised)
    assert (verdict(failure), failure.retry_after_ms, failure.message) == (expected, retry_after_ms, "m")


def test_an_endless_retry_after_of_a_handler_is_a_number_all_the_same():
    failure = failure_of_exception(errors.Throttled("m", float("inf")))
    assert failure.retry_after_ms == 366 * 86_400_000


@pytest.mark.parametrize(
    "error",
    [
        exception_named("ApiError", status=503),
        exception_named("ApiError", status_code=503),
        exception_named("ApiError", status_code=HTTPStatus.SERVICE_UNAVAILABLE),
        exception_named("HTTPStatusError", response=Answer(503)),
        exception_named("Odd", base=ValueError, status="503", response=Answer(503)),
        exception_named("ReadTimeout", status=503),
    ],
)
def test_a_status_is_found_wherever_client_libraries_keep_it(error):
    failure = failure_of_exception(error)
    assert (verdict(failure), failure.provider_status) == ("GW_5XX infrastructure", 503)


@pytest.mark.parametrize("status", [0, 200, 399, 600, True, None, "404"])
def test_what_is_no_status_of_a_failure_is_not_taken_for_one(status):
    assert failure_of_exception(exception_named("ApiError", status=status)).provider_status is None


@pytest.mark.parametrize(
    ("attributes", "retry_after_ms"),
    [
        ({"status": 429, "headers": {"Retry-After": "20"}}, 20_000),
        ({"status": 429, "headers": {"retry-after": "20"}}, 20_000),
        ({"status": 429, "headers": {"retry-after": 20}}, 20_000),
        ({"response": Answer(429, {"Retry-After": "Tue, 14 Nov 2023 22:13:50 GMT"})}, 30_000),
        ({"response": Answer(429, {"Retry-After": "soon"})}, None),
        ({"response": Answer(429, {})}, None),
        ({"response": Answer(429, "Retry-After: 5")}, None),
    ],
)
def test_the_retry_after_header_of_an_answer_is_read(attributes, retry_after_ms):
    failure = failure_of_exception(exception_named("ApiError", **attributes), NOW)
    assert (verdict(failure), failure.retry_after_ms) == ("GW_4XX throttled", retry_after_ms)


def test_headers_that_cannot_be_read_are_no_headers():
    class Closed:
        def get(self, name: str) -> str:
            raise RuntimeError(name)

    assert verdict(failure_of_exception(exception_named("E", status=429, headers=Closed()))) == "GW_4XX throttled"


def test_without_a_clock_a_retry_after_date_is_ignored_and_seconds_are_not():
    dated = exception_named("E", status=429, headers={"Retry-After": "Tue, 14 Nov 2023 22:13:50 GMT"})
    assert failure_of_exception(dated).retry_after_ms is None
    assert failure_of_exception(exception_named("E", status=429, headers={"Retry-After": "3"})).retry_after_ms == 3_000


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), "GW_TIMEOUT unknown"),
        (exception_named("ReadTimeout"), "GW_TIMEOUT unknown"),
        (exception_named("APIConnectionError", "APITimeoutError"), "GW_TIMEOUT unknown"),
        (exception_named("TimeoutException", "ConnectTimeout"), "GW_TIMEOUT infrastructure"),
        (exception_named("PoolTimeout"), "GW_TIMEOUT infrastructure"),
        (ConnectionRefusedError(), "GW_5XX infrastructure"),
        (ConnectionResetError(), "GW_5XX unknown"),
        (BrokenPipeError(), "GW_5XX unknown"),
        (exception_named("ClientConnectionError", "ServerDisconnectedError"), "GW_5XX unknown"),
        (exception_named("ClientConnectionError", "ClientOSError"), "GW_5XX unknown"),
        (exception_named("APIConnectionError"), "GW_5XX unknown"),
        (exception_named("NetworkError", "ConnectError"), "GW_5XX infrastructure"),
        (exception_named("ClientConnectorError", "Derived"), "GW_5XX infrastructure"),
        (exception_named("NetworkError", "ReadError"), "GW_5XX unknown"),
        (exception_named("RemoteProtocolError"), "GW_5XX unknown"),
        (exception_named("ClientError", "ClientPayloadError"), "GW_5XX unknown"),
        (FileNotFoundError(), "IO_ERROR infrastructure"),
        (OSError("disk"), "IO_ERROR infrastructure"),
        (MemoryError(), "IO_ERROR infrastructure"),
        (errors.DatabaseUnreachable(), "IO_ERROR infrastructure"),
        (exception_named("ValidationError", base=ValueError), "GW_4XX business"),
        (ValueError(), "UNKNOWN business"),
        (TypeError(), "UNKNOWN business"),
        (KeyError("x"), "UNKNOWN business"),
        (ZeroDivisionError(), "UNKNOWN business"),
        (SystemExit(1), "UNKNOWN business"),
    ],
)
def test_an_exception_stands_for_one_code_and_one_kind(error, expected):
    assert verdict(failure_of_exception(error)) == expected


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (exception_named("NetworkError", "ConnectError"), "GW_5XX infrastructure"),
        (exception_named("NetworkError", "ReadError"), "GW_5XX unknown"),
        (ValueError(), "GW_5XX unknown"),
    ],
)
def test_a_client_that_wraps_its_transport_error_is_judged_by_whether_there_was_a_connection(cause, expected):
    error = exception_named("APIConnectionError")
    error.__cause__ = cause
    assert verdict(failure_of_exception(error)) == expected


def test_a_status_that_a_client_made_up_for_what_was_no_http_is_none_of_the_providers():
    error = exception_named("ClientError", "ClientResponseError", status=400)
    error.__cause__ = exception_named("HttpProcessingError", "BadStatusLine", code=400)
    failure = failure_of_exception(error)
    assert (verdict(failure), failure.provider_status) == ("GW_5XX unknown", None)


@pytest.mark.parametrize("kind", FailureKind)
def test_a_failure_that_is_raised_stands_for_the_same_again(kind):
    failure = Failure(ErrorCode.GW_TIMEOUT, kind, "m", retry_after_ms=1_500)
    again = failure_of_exception(error_of_failure(failure))
    assert (again.kind, again.message) == (kind, "m")
    if kind in (FailureKind.THROTTLED, FailureKind.INFRASTRUCTURE):
        assert again.retry_after_ms == 1_500
    if kind in (FailureKind.INFRASTRUCTURE, FailureKind.BUSINESS):
        assert again.code is ErrorCode.GW_TIMEOUT


def test_of_several_exceptions_at_once_the_one_that_may_have_cost_money_decides():
    group = ExceptionGroup("both", [ValueError(), ExceptionGroup("inner", [TimeoutError(), ConnectionRefusedError()])])
    assert verdict(failure_of_exception(group)) == "GW_TIMEOUT unknown"


def test_an_exception_that_cannot_even_be_printed_is_still_a_failure():
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

        @property
        def response(self) -> object:
            raise RuntimeError

    assert failure_of_exception(Broken()).message == "Broken"


def test_a_message_names_the_type_of_an_exception_that_says_little():
    assert failure_of_exception(KeyError("name")).message == "KeyError: 'name'"
    assert failure_of_exception(TimeoutError()).message == "TimeoutError"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("GW_UNAVAILABLE", ErrorCode.GW_5XX),
        ("NETWORK_ERROR", ErrorCode.GW_5XX),
        ("PARSE_ERROR", ErrorCode.GW_4XX),
        ("VALIDATION_ERROR", ErrorCode.GW_4XX),
        ("INVALID_MAPPING", ErrorCode.GW_4XX),
        ("MEMORY_ERROR", ErrorCode.IO_ERROR),
        ("not_pdf", ErrorCode.NOT_PDF),
        ("SOMETHING_NEW", ErrorCode.UNKNOWN),
        ("", ErrorCode.UNKNOWN),
    ],
)
def test_every_inner_nuance_maps_to_one_of_the_ten(name, code):
    assert public_code(name) is code


def test_each_public_code_is_its_own_inner_name():
    assert all(INNER_CODES[code] is code for code in ErrorCode)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("120", 120_000),
        (" 1.5 ", 1_500),
        (".25", 250),
        ("0.0001", 1),
        ("0", 0),
        ("-5", 0),
        ("9" * 500, 366 * 86_400_000),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60_000),
        ("Tue, 14 Nov 2023 22:14:20 -0000", 60_000),
        ("Wed, 15 Nov 2023 00:14:20 +0200", 60_000),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("1_000", None),
        ("٣", None),
        ("12 seconds", None),
        ("Tue, 99 Nov 2023 22:14:20 GMT", None),
    ],
)
def test_a_retry_after_is_seconds_or_a_date_or_nothing(value, expected):
    assert parse_retry_after(value, NOW) == expected


@given(st.text() | st.from_regex(r"\w{3}, \d{1,3} \w{3} \d{1,5} \d+:\d+:\d+ ([+-]\d{4,6}|\w+)"))
def test_a_retry_after_of_rubbish_never_raises_and_is_never_negative(value):
    parsed = parse_retry_after(value, NOW)
    assert parsed is None or 0 <= parsed <= 366 * 86_400_000


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
