"""Workers and ticks fire schedules: each firing once, missed ones by policy, and one broken schedule stops no other."""

from typing import Any

import pytest

from backstay import Backstay, SyncBackstay
from backstay.clock import cron
from backstay.core.errors import IdempotencyConflict, UsageError
from backstay.core.events import Trouble
from backstay.core.models import MissedPolicy
from backstay.engine.scheduler import FIRINGS_MAX, MAKE_UP_MS, ON_TIME_MS, OVERDUE_MS, WAIT_MS, key_of
from backstay.store.schedules import Schedule
from backstay.testing import virtual_time
from tests.databases import Site
from tests.engine.rig import Rig
from tests.engine.virtual import virtual_rig

MINUTES = "* * * * *"


class Moved(Rig):
    """A rig whose time stands still until the test moves it."""

    @classmethod
    async def on(cls, site: Site) -> "Moved":
        made = cls(site, await site.open_store())

        @made.app.handler()
        async def report(item: dict[str, Any]) -> str:
            return "done"

        return made

    async def fire(self) -> None:
        """One look of a worker that has just come."""
        await self.engine(heart=False).scheduler.run_all()

    async def add(self, name: str = "report", line: str = MINUTES, **given: Any) -> Schedule:
        return await self.app.schedules.add("report", line, name=name, **given)

    async def keys(self, name: str = "report") -> list[str]:
        like = f"idempotency_key LIKE 'schedule:{name}:%'"
        return [row[0] for row in await self.site.rows(f"SELECT idempotency_key FROM jobs WHERE {like} ORDER BY id")]

    async def show(self, name: str = "report") -> Schedule:
        return await self.app.schedules.show(name)


@pytest.fixture
async def moved(site: Site) -> Moved:
    return await Moved.on(site)


async def test_a_firing_is_a_job_that_says_when_it_was_due(moved: Moved) -> None:
    made = await moved.add(timezone="Europe/Berlin", payload={"page": 7})
    await moved.fire()
    assert await moved.keys() == []
    assert made.next_at is not None
    await moved.site.advance((made.next_at - made.now) / 1000 + 5)
    await moved.fire()
    await moved.fire()
    assert await moved.keys() == [key_of("report", made.next_at)]
    found = await moved.show()
    job = await (await moved.app.job(found.last_job or 0)).show()
    assert job.label == f"report {cron.show_local(made.next_at, 'Europe/Berlin')}"
    assert (found.last_at, found.next_at) == (made.next_at, made.next_at + 60_000)
    assert [result.payload for result in await moved.results(await moved.app.job(job.id))] == []
    assert await moved.site.one("SELECT body FROM requests") == '{"page":7}'


async def test_a_submit_with_the_key_and_the_payload_of_a_firing_is_the_same_job(moved: Moved) -> None:
    made = await moved.add(payload={"page": 7})
    assert made.next_at is not None
    await moved.site.advance((made.next_at - made.now) / 1000 + 5)
    await moved.fire()
    key = key_of("report", made.next_at)
    assert (await moved.app.submit("report", [{"page": 7}], idempotency_key=key)).id == (await moved.show()).last_job
    with pytest.raises(IdempotencyConflict):
        await moved.app.submit("report", [{"page": 8}], idempotency_key=key)


async def test_a_job_of_a_firing_has_the_deadline_of_its_handler(moved: Moved) -> None:
    moved.app.handler("quick", deadline=90)(lambda item: item)
    await moved.app.schedules.add("quick", MINUTES)
    await moved.site.advance(60)
    await moved.fire()
    [(created, deadline)] = await moved.site.rows("SELECT created_at, deadline_at FROM jobs")
    assert deadline - created == 90_000


async def test_one_firing_is_made_for_all_that_were_missed_and_it_is_the_latest(moved: Moved) -> None:
    await moved.add(missed="once")
    await moved.site.advance(86_400 + 30)
    await moved.fire()
    latest = moved.site.clock.ms // 60_000 * 60_000
    assert await moved.keys() == [key_of("report", latest)]
    assert (await moved.show()).next_at == latest + 60_000


async def test_missed_firings_are_skipped_and_one_that_is_a_little_late_is_not_missed(moved: Moved) -> None:
    made = await moved.add(line="0 * * * *", missed="skip")
    assert made.next_at is not None
    await moved.site.advance((made.next_at - made.now + ON_TIME_MS) / 1000)
    await moved.fire()
    assert await moved.keys() == [key_of("report", made.next_at)]
    await moved.site.advance(3_600 + 1)
    await moved.fire()
    assert len(await moved.keys()) == 1, "a second later than on time it is missed"
    assert (await moved.show()).next_at == made.next_at + 2 * 3_600_000
    await moved.site.advance(3_600 - ON_TIME_MS / 1000)
    await moved.fire()
    assert await moved.keys() == [key_of("report", at) for at in (made.next_at, made.next_at + 7_200_000)]


async def test_each_missed_firing_is_made_in_order_and_a_pass_makes_a_bounded_number(moved: Moved) -> None:
    made = await moved.add(missed="all")
    assert made.next_at is not None
    await moved.site.advance((made.next_at - made.now) / 1000 + 249 * 60)
    scheduler, counts = moved.engine(heart=False).scheduler, []
    while True:
        more = await scheduler.run_once()
        counts.append(len(await moved.keys()))
        if more:
            break
    assert counts == [FIRINGS_MAX, 2 * FIRINGS_MAX, 250]
    assert await moved.keys() == [key_of("report", made.next_at + n * 60_000) for n in range(250)]


async def test_a_week_is_made_up_for_and_what_was_missed_before_is_dropped_aloud(moved: Moved) -> None:
    await moved.add(line="0 * * * *", missed="all")
    await moved.site.advance(30 * 86_400)
    await moved.fire()
    keys = await moved.keys()
    first = cron.next_after("0 * * * *", "UTC", moved.site.clock.ms - MAKE_UP_MS - 1)
    assert first is not None
    assert (len(keys), keys[0]) == (168 + (first == moved.site.clock.ms - MAKE_UP_MS), key_of("report", first))
    assert any("7 days are made up for" in event.message for event in moved.told(Trouble))


@pytest.mark.parametrize("missed", ["once", *(pytest.param(each, marks=pytest.mark.slow) for each in ("skip", "all"))])
@pytest.mark.parametrize(
    ("zone", "start", "daily"),
    [
        ("Europe/Berlin", 1_774_735_200_000, "2026-03-29T01:00:00Z"),  # 02:30 is left out: it fires at 03:00
        ("Europe/Berlin", 1_792_879_200_000, "2026-10-25T00:30:00Z"),  # 02:30 comes twice: it fires the first time
        ("America/New_York", 1_772_942_400_000, "2026-03-08T07:00:00Z"),
    ],
)
async def test_a_change_of_clocks_is_fired_through_as_the_calendar_says(
    moved: Moved, zone: str, start: int, daily: str, missed: str
) -> None:
    """Six hours around the change, looked at every ten minutes, whatever is done with missed firings."""
    await moved.site.advance((start - moved.site.clock.ms) / 1000)
    await moved.add("daily", "30 2 * * *", timezone=zone, missed=missed)
    await moved.add("hourly", "30 * * * *", timezone=zone, missed=missed)
    for _ in range(36):
        await moved.site.advance(600)
        await moved.fire()
    assert await moved.keys("daily") == [f"schedule:daily:{daily}"]
    assert await moved.keys("hourly") == [key_of("hourly", start + n * 3_600_000 + 1_800_000) for n in range(6)]


async def test_broken_schedules_among_good_ones_stop_none_and_say_what_is_wrong(moved: Moved) -> None:
    for name in ("a-good", "b-payload", "c-line", "d-zone", "e-json", "z-good"):
        await moved.add(name)
    await moved.site.rows("UPDATE schedules SET payload = '[1]' WHERE name = 'b-payload'")
    await moved.site.rows("UPDATE schedules SET cron = 'x' WHERE name = 'c-line'")
    await moved.site.rows("UPDATE schedules SET timezone = 'Atlantis' WHERE name = 'd-zone'")
    await moved.site.rows("UPDATE schedules SET payload = '{' WHERE name = 'e-json'")
    for _ in range(3):
        await moved.site.advance(60)
        await moved.fire()
    assert [len(await moved.keys(name)) for name in ("a-good", "z-good")] == [3, 3]
    said = {found.name: found.error for found in await moved.app.schedules.list()}
    assert (said["a-good"], said["z-good"]) == (None, None)
    assert said["b-payload"] == "the payload does not fit the handler: value: Input should be an object"
    assert said["d-zone"] == "there is no time zone 'Atlantis'"
    assert said["c-line"]
    assert said["e-json"]
    troubles = [event for event in moved.told(Trouble) if event.where == "schedule b-payload"]
    assert len(troubles) == 3, "once for each look"
    await moved.site.rows("UPDATE schedules SET payload = '{}' WHERE name = 'b-payload'")
    await moved.site.advance(WAIT_MS / 1000)
    await moved.fire()
    mended = await moved.show("b-payload")
    assert (mended.error, len(await moved.keys("b-payload"))) == (None, 1)


@pytest.mark.parametrize("error", [KeyError, SystemExit])
async def test_a_validator_that_raises_anything_breaks_its_own_schedule_only(
    moved: Moved, error: type[BaseException]
) -> None:
    class Odd:
        def check(self, payload: Any) -> None:
            raise error("nobody foresaw this")

    await moved.add("good")
    await moved.add("odd")
    moved.app.handler("strange")(lambda item: item)
    moved.app.handlers["strange"].check = Odd().check  # type: ignore[method-assign]
    await moved.site.rows("UPDATE schedules SET handler = 'strange' WHERE name = 'odd'")
    await moved.site.advance(60)
    await moved.fire()
    assert len(await moved.keys("good")) == 1
    assert "nobody foresaw this" in str((await moved.show("odd")).error)


async def test_a_schedule_whose_handler_nobody_has_says_so_and_waits_for_it(moved: Moved) -> None:
    await moved.add("good")
    await moved.add("lost", missed="once")
    await moved.site.rows("UPDATE schedules SET handler = 'gone' WHERE name = 'lost'")
    await moved.site.advance(60)
    await moved.fire()
    assert (await moved.show("lost")).error is None, "another worker may have it"
    await moved.site.advance(OVERDUE_MS / 1000)
    await moved.fire()
    assert (await moved.show("lost")).error == "no worker or tick that has the handler 'gone' has run"
    assert len(await moved.keys("good")) == 2
    moved.app.handler("gone")(lambda item: item)
    await moved.fire()
    assert ((await moved.show("lost")).error, len(await moved.keys("lost"))) == (None, 1)


async def test_a_worker_that_sends_one_job_only_fires_nothing(moved: Moved) -> None:
    await moved.add()
    await moved.site.advance(60)
    engine = moved.engine(heart=False)
    engine.parts.only_job = 1
    assert await engine.scheduler.run_once() is None
    assert await moved.keys() == []


async def test_the_code_is_written_down_at_the_start_for_its_owner(moved: Moved) -> None:
    @moved.app.schedule("0 7 * * *", timezone="Europe/Berlin", payload={"day": 1}, missed="skip")
    @moved.app.handler()
    async def morning(item: dict[str, Any]) -> str:
        return "good"

    assert await moved.app.schedules.list() == []
    await moved.fire()
    [found] = await moved.app.schedules.list()
    assert (found.name, found.handler, found.payload) == ("morning", "morning", '{"day":1}')
    assert (found.missed, found.timezone) == (MissedPolicy.SKIP, "Europe/Berlin")
    assert found.declared_at == found.created_at
    await moved.app.schedules.pause("morning")
    await moved.fire()
    assert (await moved.show("morning")).paused_at is not None


async def test_a_schedule_is_run_by_hand_and_its_next_firing_stays(moved: Moved) -> None:
    made = await moved.add(payload={"page": 1})
    job = await moved.app.schedules.run("report")
    assert (await job.show()).label == "report, run by hand"
    await moved.app.schedules.pause("report")
    assert (await moved.app.schedules.run("report")).id != job.id
    assert (await moved.app.schedules.resume("report")).next_at == made.next_at
    await moved.app.schedules.remove("report")
    assert await moved.app.schedules.list() == []


def test_a_program_without_asyncio_adds_runs_and_removes_a_schedule(sqlite_file_url: str) -> None:
    app = Backstay(sqlite_file_url)
    app.handler("report")(lambda item: item)
    with SyncBackstay(app) as backstay:
        made = backstay.schedules.add("report", "0 7 * * *", timezone="Europe/Berlin", payload={"a": 1})
        assert (made.name, made.timezone, made.payload) == ("report", "Europe/Berlin", '{"a":1}')
        assert backstay.schedules.pause("report").paused_at is not None
        assert backstay.schedules.resume("report").paused_at is None
        assert backstay.schedules.run("report").show().total == 1
        assert [found.name for found in backstay.schedules.list()] == [backstay.schedules.show("report").name]
        backstay.schedules.remove("report")
        assert backstay.schedules.list() == []


async def test_what_is_wrong_in_the_code_is_refused_where_it_stands() -> None:
    app = Backstay("sqlite:///never-made.db")

    @app.handler()
    async def text(item: str) -> str:
        return item

    for given, said in (
        ({"cron": "0 25 * * *", "payload": "x"}, "bad hour"),
        ({"cron": MINUTES, "payload": "x", "timezone": "Berlin"}, "no time zone"),
        ({"cron": MINUTES, "payload": "x", "missed": "never"}, "no policy 'never'"),
        ({"cron": MINUTES}, "it must be str, not dict"),
        ({"cron": MINUTES, "payload": object()}, "the payload is not JSON"),
        ({"cron": MINUTES, "payload": "x" * 70_000}, "the limit is 65,536"),
        ({"cron": MINUTES, "payload": "x", "name": "a b"}, "cannot be the name"),
    ):
        with pytest.raises(UsageError, match=said):
            app.schedule(**given)(text)
    with pytest.raises(UsageError, match="needs a handler"):
        app.schedule(MINUTES)(lambda item: item)  # type: ignore[type-var]
    app.schedule(MINUTES, payload="x")(text)
    with pytest.raises(UsageError, match="two schedules are named 'text'"):
        app.schedule(MINUTES, payload="y")(text)
    assert list(app.handlers.schedules) == ["text"]


async def test_a_schedule_for_an_unknown_handler_is_refused_and_nothing_is_written(moved: Moved) -> None:
    with pytest.raises(UsageError, match="there is no handler 'reprt'"):
        await moved.app.schedules.add("reprt", MINUTES)
    with pytest.raises(UsageError, match="not valid"):
        await moved.add(line="* * *")
    wrong: Any
    for wrong in (5, None):
        with pytest.raises(UsageError, match=f"a cron line must be a text, not {wrong}"):
            await moved.app.schedules.add("report", wrong)
        with pytest.raises(UsageError, match="there is no handler"):
            await moved.app.schedules.add(wrong, MINUTES)
        with pytest.raises(UsageError, match="is not a valid topic"):
            await moved.app.publish(wrong, {})
    assert await moved.site.one("SELECT count(*) FROM schedules") == 0


@virtual_time
async def test_a_worker_wakes_when_a_schedule_is_due_and_runs_its_job() -> None:
    ran: list[float] = []
    async with virtual_rig() as rig:

        @rig.app.schedule("*/5 * * * *")
        @rig.app.handler()
        async def report(item: Any) -> None:
            ran.append(rig.clock.monotonic())

        async with rig.working(), rig.working():
            await rig.clock.sleep(610)
    assert [round(at) // 300 for at in ran] == [1, 2]
    assert all(at % 300 < 2.5 for at in ran), "the worker's idle wait, and no more"


@virtual_time
async def test_a_tick_fires_what_is_due_and_runs_it() -> None:
    async with virtual_rig() as rig:

        @rig.app.schedule("*/5 * * * *")
        @rig.app.handler()
        async def report(item: Any) -> None: ...

        await rig.tick()
        await rig.clock.sleep(300)
        assert (await rig.tick()).claimed == 1
        assert (await rig.tick()).claimed == 0


@virtual_time
async def test_an_idle_worker_asks_the_schedules_about_once_a_second() -> None:
    async with virtual_rig() as rig:
        rig.app.handler("report")(lambda item: item)
        await rig.app.schedules.add("report", "0 0 1 1 *")
        asked = 0
        known = rig.client.store.schedules.next_in_ms

        async def counted(handlers: Any) -> Any:
            nonlocal asked
            asked += 1
            return await known(handlers)

        rig.client.store.schedules.next_in_ms = counted  # type: ignore[method-assign]
        async with rig.working():
            await rig.clock.sleep(100)
    assert 80 <= asked <= 130
