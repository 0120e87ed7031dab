"""What an HTTP status means for the item, how long it asks to wait, and the ten codes that are shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.failures import INNER_CODES, ErrorCode, failure_of_status, parse_retry_after, public_code
from tests.core.verdicts import NOW, verdict


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, "GW_4XX business"),
        (401, "FORBIDDEN held"),
        (402, "FORBIDDEN held"),
        (403, "FORBIDDEN refused"),
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
        (400, "API key not valid. Please pass a valid API key."),
        (400, "You ran out of money. (billing_hard_limit_reached)"),
        (403, "Incorrect API key provided"),
    ],
)
def test_an_account_without_money_holds_the_provider_instead_of_failing_items(status, message):
    assert verdict(failure_of_status(status, message)) == "FORBIDDEN held"


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (403, "Project `p` does not have access to model `m` (model_not_found)"),
        (401, "key not allowed to access model. This key can only access models=['m']"),
        (403, "This content may violate our usage policies (content_policy_violation)"),
    ],
)
def test_a_refusal_of_a_model_or_of_content_is_the_requests_own(status, message):
    assert verdict(failure_of_status(status, message)) == "FORBIDDEN business"


def test_no_request_can_make_its_refusal_look_like_one_of_the_account():
    for message in ("Unknown parameter: 'insufficient_quota'. (unknown_parameter)", "bad value 'invalid_api_key'"):
        assert verdict(failure_of_status(400, message)) == "GW_4XX business"


def test_a_status_without_a_message_is_put_into_words():
    assert failure_of_status(429).message == "the provider answered 429 Too Many Requests"
    assert failure_of_status(599).message == "the provider answered 599"


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
