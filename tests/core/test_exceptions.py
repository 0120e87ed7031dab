"""What an exception means for the item: by its type, its status, its headers and what caused it."""

from http import HTTPStatus

import pytest

from backstay.core import errors
from backstay.core.failures import ErrorCode, Failure, FailureKind, error_of_failure, failure_of_exception
from tests.core.verdicts import NOW, verdict


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
    ("raised", "expected", "retry_after_ms"),
    [
        (errors.Transient("m"), "GW_5XX infrastructure", None),
        (errors.Transient("m", ErrorCode.NOT_READY, 1.5), "NOT_READY infrastructure", 1_500),
        (errors.Transient("m", retry_after_seconds=-3), "GW_5XX infrastructure", 0),
        (errors.Transient("m", retry_after_seconds=float("nan")), "GW_5XX infrastructure", None),
        (errors.Throttled("m", 20), "GW_4XX throttled", 20_000),
        (errors.Throttled("m", "20"), "GW_4XX throttled", 20_000),  # type: ignore[arg-type]
        (errors.Throttled("m", "soon"), "GW_4XX throttled", None),  # type: ignore[arg-type]
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


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if kind is not FailureKind.REFUSED])
def test_a_failure_that_is_raised_stands_for_the_same_again(kind):
    failure = Failure(ErrorCode.GW_TIMEOUT, kind, "m", retry_after_ms=1_500)
    again = failure_of_exception(error_of_failure(failure))
    assert (again.kind, again.message) == (kind, "m")
    if kind in (FailureKind.THROTTLED, FailureKind.INFRASTRUCTURE):
        assert again.retry_after_ms == 1_500
    if kind in (FailureKind.INFRASTRUCTURE, FailureKind.BUSINESS):
        assert again.code is ErrorCode.GW_TIMEOUT


def test_a_refused_request_that_is_raised_is_final():
    again = failure_of_exception(error_of_failure(Failure(ErrorCode.FORBIDDEN, FailureKind.REFUSED, "m")))
    assert (again.kind, again.code) == (FailureKind.BUSINESS, ErrorCode.FORBIDDEN)


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
