"""When cron lines fire, above all on the days when clocks change."""

from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import Any

import pytest

from backstay.clock import cron
from backstay.core.errors import UsageError
from backstay.core.models import NewSchedule, read_missed_policy

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


def ms(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1000)


def shown(line: str, zone: str, first: str, until: str) -> list[str]:
    """Local time and UTC."""
    found = cron.firings_between(line, zone, ms(first), ms(until))
    return [f"{cron.show_local(at, zone)} {datetime.fromtimestamp(at / 1000, UTC):%H:%M}Z" for at in found]


@pytest.mark.parametrize(
    ("zone", "first", "until", "expected"),
    [
        (
            BERLIN,
            "2026-03-28T00:00Z",
            "2026-03-30T12:00Z",
            ["2026-03-28 02:30 CET 01:30Z", "2026-03-29 03:00 CEST 01:00Z", "2026-03-30 02:30 CEST 00:30Z"],
        ),
        (
            BERLIN,
            "2026-10-24T00:00Z",
            "2026-10-26T12:00Z",
            ["2026-10-24 02:30 CEST 00:30Z", "2026-10-25 02:30 CEST 00:30Z", "2026-10-26 02:30 CET 01:30Z"],
        ),
        (
            NEW_YORK,
            "2026-03-07T00:00Z",
            "2026-03-09T12:00Z",
            ["2026-03-07 02:30 EST 07:30Z", "2026-03-08 03:00 EDT 07:00Z", "2026-03-09 02:30 EDT 06:30Z"],
        ),
    ],
)
def test_a_daily_time_that_a_change_of_clocks_skips_or_repeats_fires_once_that_day(
    zone: str, first: str, until: str, expected: list[str]
) -> None:
    assert shown("30 2 * * *", zone, first, until) == expected


def test_a_daily_time_in_the_hour_that_new_york_repeats_fires_once() -> None:
    assert shown("30 1 * * *", NEW_YORK, "2026-10-31T00:00Z", "2026-11-02T12:00Z") == [
        "2026-10-31 01:30 EDT 05:30Z",
        "2026-11-01 01:30 EDT 05:30Z",
        "2026-11-02 01:30 EST 06:30Z",
    ]


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25", "2026-03-08", "2026-11-01"])
@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK])
@pytest.mark.parametrize(("line", "apart_ms"), [("15 * * * *", HOUR_MS), ("*/5 * * * *", 5 * MINUTE_MS)])
def test_hourly_and_finer_lines_fire_in_real_time_on_every_day(zone: str, day: str, line: str, apart_ms: int) -> None:
    start = ms(f"{day}T00:00Z")
    found = list(cron.firings_between(line, zone, start, start + DAY_MS - 1))
    assert len(found) == DAY_MS // apart_ms
    assert {later - earlier for earlier, later in pairwise(found)} == {apart_ms}


@pytest.mark.parametrize("line", ["30 2 * * *", "0 1-3 * * *", "*/20 2 * * *", "45 */2 * * *", "5,35 * * * *"])
@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, "Asia/Beirut", "UTC"])
def test_it_does_not_matter_from_which_moment_a_firing_is_looked_for(line: str, zone: str) -> None:
    """Each day of a change, from every ten minutes: no firing is found twice, none is left out."""
    for day in ("2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25", "2026-11-01"):
        start, end = ms(f"{day}T00:00Z") - 12 * HOUR_MS, ms(f"{day}T00:00Z") + DAY_MS
        whole = list(cron.firings_between(line, zone, start, end))
        for moment in range(start, end, 10 * MINUTE_MS):
            later = [at for at in whole if at > moment]
            before = [at for at in whole if at <= moment]
            if later:
                assert cron.next_after(line, zone, moment) == later[0]
            assert cron.last_between(line, zone, start, moment) == (before[-1] if before else None)


def test_in_an_hour_that_comes_twice_a_time_that_was_is_not_found_again() -> None:
    second_time = ms("2026-10-25T01:10Z")  # 02:10 for the second time
    found = cron.next_after("30 2 * * *", BERLIN, second_time)
    assert found == ms("2026-10-26T01:30Z")


@pytest.mark.parametrize("line", ["* * * * *", "0 0 1 1 *", "0 0 29 2 *", "0 12 * * MON"])
def test_the_last_firing_of_years_is_found_as_the_list_of_all_has_it(line: str) -> None:
    end = ms("2026-05-05T05:05Z")
    found = cron.last_between(line, BERLIN, ms("2020-01-01T00:00Z"), end)
    assert found is not None
    assert found <= end
    following = cron.next_after(line, BERLIN, found)
    assert following is not None
    assert following > end


def test_firings_are_a_stream_that_costs_only_what_is_read() -> None:
    found = cron.firings_between("* * * * *", "UTC", ms("1990-01-01T00:00Z"), ms("2026-01-01T00:00Z"))
    assert list(islice(found, 2)) == [ms("1990-01-01T00:00Z"), ms("1990-01-01T00:01Z")]


@pytest.mark.parametrize(
    ("line", "zone", "said"),
    [
        ("61 * * * *", "UTC", "the cron line '61 * * * *' is not valid: bad minute"),
        ("0 0 31 2 *", "UTC", "the cron line '0 0 31 2 *' is not valid: this date never comes"),
        ("0 0 30,31 feb *", "UTC", "the cron line '0 0 30,31 feb *' is not valid: this date never comes"),
        ("0 0 32 2 *", "UTC", "the cron line '0 0 32 2 *' is not valid: bad day-of-month"),
        ("*/61 * * * *", "UTC", "the cron line '*/61 * * * *' is not valid: the step 61 of its minute is above 60"),
        ("0 5,*/25 * * *", "UTC", "the cron line '0 5,*/25 * * *' is not valid: the step 25 of its hour is above 24"),
        (
            "0 0 1-9/32 * *",
            "UTC",
            "the cron line '0 0 1-9/32 * *' is not valid: the step 32 of its day of month is above 31",
        ),
        ("0 0 1 */13 *", "UTC", "the cron line '0 0 1 */13 *' is not valid: the step 13 of its month is above 12"),
        ("0 0 * * */8", "UTC", "the cron line '0 0 * * */8' is not valid: the step 8 of its day of week is above 7"),
        (
            "0 0 1 1 " + "1," * 97,
            "UTC",
            f"the cron line {'0 0 1 1 ' + '1,' * 96!r}… is not valid: it has 202 characters; the limit is 200",
        ),
        (5, "UTC", "a cron line must be a text, not 5"),
        (None, "UTC", "a cron line must be a text, not None"),
        ("* * * * *", 5, "a time zone must be a text, not 5"),
        ("* * * * *", ["UTC"], "a time zone must be a text, not ['UTC']"),
        ("* * * * * *", "UTC", "the cron line '* * * * * *' is not valid: seconds are not supported"),
        ("daily", "UTC", "the cron line 'daily' is not valid: it must have five fields, not 1"),
        ("", "UTC", "the cron line '' is not valid: it must have five fields, not 0"),
        ("* * * * *", "Europe/Berln", "there is no time zone 'Europe/Berln'"),
        ("* * * * *", "Europe", "there is no time zone 'Europe'"),
        ("* * * * *", "../../etc/passwd", "there is no time zone '../../etc/passwd'"),
        ("* * * * *", "", "there is no time zone ''"),
        ("* * * * *", "localtime", "there is no time zone 'localtime'"),
        ("* * * * *", "x" * 200, f"there is no time zone {'x' * 100!r}…"),
    ],
)
def test_what_is_not_a_line_or_a_zone_is_refused_in_plain_words(line: Any, zone: Any, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        cron.check_line(line, zone)
    assert refused.value.message == said


def test_a_misspelt_zone_is_guessed() -> None:
    with pytest.raises(UsageError) as refused:
        cron.zone_named("Europe/Berln")
    assert refused.value.hint == "did you mean Europe/Berlin?"


@pytest.mark.parametrize("line", ["*/60 * * * *", "0 */24 * * *", "0 0 */31 * *", "0 0 1 */12 *", "0 0 * * */7"])
def test_a_step_of_the_whole_range_is_allowed(line: str) -> None:
    assert cron.check_line(line, "UTC") == line


def test_blanks_in_a_line_do_not_matter() -> None:
    assert cron.check_line("  */5   * * *\t* ", "UTC") == "*/5 * * * *"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 101, "ü", "a\n", 5])
def test_a_name_that_no_path_and_no_key_can_hold_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a schedule"):
        NewSchedule(name, "report", "* * * * *")


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError) as refused:
        read_missed_policy("never")
    assert refused.value.hint == "use one of: skip, once, all"
