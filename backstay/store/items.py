"""Items: how workers take them, keep them and settle them."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from backstay.core import pace as paces
from backstay.core.ids import item_range, level_of
from backstay.core.models import Claimed, JobTerms, Settlement
from backstay.core.pace import Pace
from backstay.store.budgets import MoneyGone, claim_affordable
from backstay.store.databases.database import HEAD_SECONDS, TIME_HEAD_SECONDS, Database, Front, writes
from backstay.store.job_counts import LargeJobs, Move, count
from backstay.store.providers import lock_pace, save_pace
from backstay.store.queries import Ask, Script, one, record
from backstay.store.settle import Settled, are_few, settle_few
from backstay.store.settle import settle as settle_all

PROMOTE_ITEMS_MAX = 5_000
PROBE_CHOICE = 20  # candidates per probe of a failing provider
PICKS_MAX = 10  # by one claim, while it finds items that do not fit under their budgets

Fronts = Callable[..., Front]  # by names: of the statement, the handler, and where in the queue it starts
_order_key = attrgetter("order_key")


class Want(NamedTuple):
    """How many items of a handler a worker can start now."""

    handler: str
    items: int
    reconcile_ms: int  # how long after the claim a request of a lost worker may still arrive at the provider
    paced: str | None = None  # the name of the pace that limits it; then the budgets of its jobs are checked as well
    only_job: int | None = None  # with a pace: only items of this job
    only_first: int | None = None  # only this number of that job's items, from its first one
    from_key: int = 0  # where in the queue to start; the rest comes from its head
    cost_micros: int | None = None  # of items that were submitted without a cost
    weighs: bool = False  # items without a cost must be weighed before they are claimed
    known: bool = False  # its next items are probably of jobs that are known to be running
    guarded: bool = False  # its jobs are locked only when all is decided, if nothing else needs that (claim_fitting)
    probes: tuple[float, ...] = ()  # the places in the queue, from 0 to 1, of the probes for a failing provider


class ClaimedItems(NamedTuple):
    items: list[Claimed]
    jobs: list[JobTerms]  # the terms of the jobs that are new to the worker
    more: bool = False  # a limit was reached: there may be more items
    again_ms: int | None = None  # when a provider's pace allows the next call
    unweighed: tuple[tuple[str, int], ...] = ()  # handler and item: the cost of their calls is not known yet
    passed_over: bool = False  # some items did not fit under their budgets; there may be others behind them that do


@record
class Picked(NamedTuple):
    """An item that may be claimed next, and the most that its call may cost."""

    id: int
    job_id: int
    cost_micros: int | None
    tokens: int
    output_tokens: int
    calls: int
    order_key: int


record(Claimed)
record(JobTerms)


class PacedClaim(NamedTuple):
    """The claimed items, how many the pace allowed, and how long until it allows more."""

    items: list[Claimed]
    allowed: int
    again_ms: int
    unweighed: tuple[tuple[str, int], ...] = ()
    passed_over: bool = False


class Items:
    def __init__(self, database: Database, large: LargeJobs | None = None) -> None:
        self._db = database
        self._large = large or LargeJobs()
        self._fronts: dict[tuple[str, ...], Front] = {}
        self._known: set[str] = set()  # handlers whose last claim had only items of known jobs

    def _front(self, *names: str, head_seconds: float = HEAD_SECONDS) -> Front:
        """How far the index of a statement has been read."""
        if names not in self._fronts:
            self._fronts[names] = Front(self._db, head_seconds)
        return self._fronts[names]

    def forget_fronts(self) -> None:
        """The next looks start at the head."""
        self._fronts.clear()

    async def claim(
        self,
        wants: Sequence[Want],
        worker: str,
        lease_ms: int,
        known_jobs: Collection[int] = (),
        promoting: bool = True,
        room: int | None = None,
    ) -> ClaimedItems:
        if not any(want.paced for want in wants):
            wants = [want._replace(known=want.handler in self._known) for want in wants]
            claim = partial(claim_items, self._front, wants, worker, lease_ms, known_jobs, promoting, room)
            return self._note(await self._db.single(claim))
        # One transaction each: two workers that lock the same paces in different orders would deadlock.
        parts: list[ClaimedItems] = []
        for index, want in enumerate(wants):
            left = None if room is None else room - sum(len(part.items) for part in parts)
            share = None if left is None else -(-left // (len(wants) - index))
            terms: dict[str, Any] = {"worker": worker, "lease_ms": lease_ms, "known_jobs": known_jobs, "room": share}
            claiming = partial(claim_items, self._front, **terms, promoting=promoting and index == 0)
            if want.paced is None:
                parts.append(await self._db.single(partial(claiming, [want])))
                continue
            try:
                guarded = want._replace(guarded=self._db.dialect.chained)
                parts.append(await self._db.write(partial(claiming, [guarded])))
            except MoneyGone:
                parts.append(await self._db.write(partial(claiming, [want])))
        return _join_claims(parts)

    def _note(self, taken: ClaimedItems) -> ClaimedItems:
        """Remembers which jobs are large, and whose next items are probably of known jobs."""
        self._large.note_claimed((job.id, job.items_left) for job in taken.jobs)
        if self._db.dialect.chained:
            new = {job.id for job in taken.jobs}
            self._known = {item.handler for item in taken.items}
            self._known -= {item.handler for item in taken.items if item.job_id in new}
        return taken

    async def claim_named(
        self,
        named: Sequence[tuple[Want, Collection[int]]],
        worker: str,
        lease_ms: int,
        known_jobs: Collection[int] = (),
    ) -> ClaimedItems:
        """Claims those of the named items, by handler, that are ready; the others are done, held, or leased by another
        worker."""
        return self._note(await self._db.single(lambda: _claim_named(named, worker, lease_ms, known_jobs)))

    @writes
    def poll(
        self,
        handler: str,
        account: str | None,
        items: int,
        worker: str,
        lease_ms: int,
        known_jobs: Collection[int] = (),
        grace_ms: int = 0,
        time_shares: int = 1,
    ) -> Script[ClaimedItems]:
        """`time_shares`: how many providers share the time until an item's deadline; after the first share, its task is
        no longer needed."""
        values = {"handler": handler, "account": account or "", "n": items, "worker": worker, "lease_ms": lease_ms}
        values |= {"grace_ms": grace_ms, "time_shares": max(time_shares, 1)}
        front = self._front("poll", handler, account or "")
        rows = yield from front.look_back(lambda back_ms: Ask("poll", {**values, "back_ms": back_ms}), items)
        taken = sorted(rows, key=_by_id)
        return ClaimedItems(taken, (yield from _new_terms(taken, known_jobs)))

    @writes
    def poll_late(
        self, handler: str, account: str | None, items: int, lease_ms: int, late_ms: int
    ) -> Script[list[Claimed]]:
        """Tasks whose items have timed out, for `late_ms` after that."""
        values = {"handler": handler, "account": account or "", "n": items, "lease_ms": lease_ms, "late_ms": late_ms}
        yield Ask("forget_late", values)
        front = self._front("poll_late", handler, account or "", head_seconds=TIME_HEAD_SECONDS)
        rows = yield from front.look_back(lambda back_ms: Ask("poll_late", {**values, "back_ms": back_ms}), items)
        return sorted(rows, key=_by_id)

    async def put_off_polls(self, polls: Sequence[tuple[int, int, int | None]]) -> None:
        """Stores when to poll tasks again: (item, fence, in how many milliseconds; None: never)."""
        await self._db.write(one("put_off_polls", batch=polls))

    @writes
    def rescue(
        self, handler: str, askable: bool, items: int, worker: str, lease_ms: int, known_jobs: Collection[int] = ()
    ) -> Script[ClaimedItems]:
        values = {"handler": handler, "askable": int(askable), "n": items, "worker": worker, "lease_ms": lease_ms}
        front = self._front("rescue", handler, head_seconds=TIME_HEAD_SECONDS)
        rows = yield from front.look_back(lambda back_ms: Ask("rescue", {**values, "back_ms": back_ms}), items)
        taken = sorted(rows, key=_by_id)
        return ClaimedItems(taken, (yield from _new_terms(taken, known_jobs)))

    @writes
    def return_lost_claim(self, claimed_as: str) -> Script[None]:
        """Gives back the items of a claim that was committed but whose answer never reached the worker."""
        rows = yield Ask("return_lost_claim", {"worker": claimed_as})
        priced = [row for row in rows if row["reserved_micros"]]
        if priced:
            yield Ask("free_disowned", batch=[(row["id"],) for row in priced])
            freed = ((row["job_id"], row["reserved_micros"], row["handler"]) for row in priced)
            yield from count(Move(job, None, None, freed=micros, payer=handler) for job, micros, handler in freed)

    @writes
    def extend(self, held: Sequence[tuple[int, int]], lease_ms: int, worker: str) -> Script[set[tuple[int, int]]]:
        """Extends the leases given as (item, fence); returns those that another worker has now."""
        yield Ask("see_worker", {"id": worker})
        if not held:
            return set()
        missing = set(held) - set((yield Ask("extend", {"lease_ms": lease_ms}, held)))
        if missing:
            missing -= set((yield Ask("held_still", batch=sorted(missing))))
        if missing:
            missing -= set((yield Ask("out_of_time", batch=sorted(missing))))
        return missing

    async def extend_polls(self, polled: Sequence[tuple[int, int]], lease_ms: int) -> None:
        """Extends the leases of tasks, given as (item, fence), while their provider is being asked about them."""
        await self._db.write(one("extend_polls", {"lease_ms": lease_ms}, polled))

    @writes
    def report_progress(self, progress: Sequence[tuple[int, int, int]]) -> Script[set[int]]:
        """Stores the progress of items, given as (item, fence, percent); returns the items that were updated."""
        rows = yield Ask("report_progress", batch=progress)
        return {row["id"] for row in rows}

    @writes
    def weigh(self, weights: Sequence[tuple[int, int, int]]) -> Script[None]:
        """Stores the most that calls cost, as (item, micro-dollars, tokens), for items that have no such figure yet."""
        yield Ask("weigh_new", batch=weights)

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        large = self._large if self._db.dialect.chained else None
        if large is not None and are_few(settlements, large):
            return await self._db.single(lambda: settle_few(settlements, large))
        return await self._db.write(lambda: settle_all(settlements, large))

    @writes
    def advance_turns(self, served: Mapping[str, Sequence[int]]) -> Script[None]:
        """Stores how far queues have been served: the last key of each priority, by handler."""
        rows = sorted((handler, level_of(key), key) for handler, keys in served.items() for key in keys)
        yield Ask("advance_turns", batch=rows)


def claim_items(
    front_of: Fronts,
    wants: Sequence[Want],
    worker: str,
    lease_ms: int,
    known_jobs: Collection[int],
    promoting: bool,
    room: int | None = None,
) -> Script[ClaimedItems]:
    """Claims the items that each handler wants. All share `room`; room that one handler cannot use goes to the next."""
    if promoting:
        promoted = partial(_ask_back, "promote", {"n": PROMOTE_ITEMS_MAX})
        yield from front_of("promote").look_back(promoted, PROMOTE_ITEMS_MAX)
    items: list[Claimed] = []
    more = passed_over = False
    again_ms: int | None = None
    unweighed: tuple[tuple[str, int], ...] = ()
    for index, want in enumerate(wants):
        share = want.items if room is None else min(want.items, -(-(room - len(items)) // (len(wants) - index)))
        if share <= 0:
            break
        values = {"reconcile_ms": want.reconcile_ms, "worker": worker, "lease_ms": lease_ms}
        if want.paced is None and want.probes:
            picked = yield from _pick_probes(want, share)
            rows = yield Ask("claim_named", {"handler": want.handler, **values}, [(item.id,) for item in picked])
        elif want.paced is None:
            fronts = partial(front_of, "claim", want.handler)
            rows = yield from _claim_ready(fronts, want, share, values)
            if len(rows) < share:
                again_ms = _sooner(again_ms, fronts().again_ms)
        else:
            fronts = partial(front_of, "pick", want.handler, str(want.only_job or ""))
            paced = yield from _claim_paced(fronts, want, want.paced, share, values)
            rows, share = paced.items, min(share, paced.allowed)
            unweighed += paced.unweighed
            passed_over = passed_over or paced.passed_over
            again_ms = _sooner(again_ms, paced.again_ms or None)
            if len(rows) < share:
                again_ms = _sooner(again_ms, fronts().again_ms)
        items += rows
        more = more or len(rows) == share
    items.sort(key=_by_id)
    return ClaimedItems(items, (yield from _new_terms(items, known_jobs)), more, again_ms, unweighed, passed_over)


def _claim_ready(fronts: Fronts, want: Want, share: int, values: dict[str, Any]) -> Script[list[Claimed]]:
    """The next ready items. A claim that starts at a lower priority has a front there, and takes the rest of its share
    from the head of the queue."""

    def claim(n: int, from_key: int) -> Ask:
        name = "claim_known" if want.known else "claim"
        return Ask(name, {"handler": want.handler, "n": n, "from_key": from_key, **values})

    items: list[Claimed] = []
    if want.from_key:
        items = yield from fronts(str(want.from_key)).look(partial(claim, share), share, _order_key, want.from_key)
    if (left := share - len(items)) > 0:
        items = [*items, *(yield from fronts().look(partial(claim, left), left, _order_key))]
    return items


def _ask_back(name: str, values: Mapping[str, Any], back_ms: int) -> Ask:
    return Ask(name, {**values, "back_ms": back_ms})


def _sooner(first: int | None, second: int | None) -> int | None:
    return min((ms for ms in (first, second) if ms is not None), default=None)


def _claim_named(
    named: Sequence[tuple[Want, Collection[int]]], worker: str, lease_ms: int, known_jobs: Collection[int]
) -> Script[ClaimedItems]:
    """Claims those of the named items that are ready, wherever they are in the database's order.

    Not for paced handlers: their claims follow that order."""
    items: list[Claimed] = []
    for want, ids in named:
        values = {"handler": want.handler, "reconcile_ms": want.reconcile_ms, "worker": worker, "lease_ms": lease_ms}
        items += yield Ask("claim_named", values, [(item,) for item in sorted(set(ids))])
    items.sort(key=_by_id)
    return ClaimedItems(items, (yield from _new_terms(items, known_jobs)))


def _join_claims(parts: Sequence[ClaimedItems]) -> ClaimedItems:
    """Several claims as one."""
    items = sorted((item for part in parts for item in part.items), key=_by_id)
    waits = [part.again_ms for part in parts if part.again_ms is not None]
    unweighed = tuple(item for part in parts for item in part.unweighed)
    more, passed_over = any(part.more for part in parts), any(part.passed_over for part in parts)
    return ClaimedItems(
        items, [job for part in parts for job in part.jobs], more, min(waits, default=None), unweighed, passed_over
    )


def _claim_paced(fronts: Fronts, want: Want, provider: str, share: int, values: dict[str, Any]) -> Script[PacedClaim]:
    """Claims no more than the provider's pace and the jobs' budgets allow, and reserves the money, in one
    transaction. If items do not fit under their budgets, it looks at those behind them."""
    pace, now = yield from lock_pace(provider)
    [in_flight] = yield Ask("in_flight", {"handler": want.handler})
    share = min(share, paces.requests_allowed(pace, in_flight["items"], now))
    items, unweighed, passed_over = list[Claimed](), tuple[tuple[str, int], ...](), False
    for _ in range(PICKS_MAX if share > 0 else 0):
        found = picked = yield from _pick(fronts, want, share - len(items))
        if want.weighs:
            unweighed += tuple((want.handler, item.id) for item in picked if item.cost_micros is None)
            picked = [item for item in picked if item.cost_micros is not None]
        picked = picked[: _tokens_fit(pace, picked, now)]
        won = (yield from claim_affordable(want, picked, values)) if picked else []
        if len(won) < len(found):
            ids = {item.id for item in won}
            left_at = min(item.order_key for item in found if item.id not in ids)
            fronts().go_back(left_at)
            fronts(str(want.from_key)).go_back(left_at)
        pace = _pace_after(pace, picked, won, now)
        items += won
        passed_over = len(won) < len(picked)
        if unweighed or not passed_over or len(items) == share:
            break
    if items:
        yield from save_pace(pace)
    return PacedClaim(items, share, paces.waits_ms(pace, now), unweighed, passed_over)


def _tokens_fit(pace: Pace, picked: Sequence[Picked], now: int) -> int:
    return paces.tokens_fit(pace, [item.tokens for item in picked], now, [item.output_tokens for item in picked])


def _pace_after(pace: Pace, picked: Sequence[Picked], won: Sequence[Claimed], now: int) -> Pace:
    if not won:
        return pace
    if len(won) < len(picked):
        ids = {item.id for item in won}
        picked = [item for item in picked if item.id in ids]
    tokens, outputs = sum(item.tokens for item in picked), sum(item.output_tokens for item in picked)
    return paces.pace_after(pace, len(won), tokens, now, outputs)


def _pick(fronts: Fronts, want: Want, share: int) -> Script[list[Picked]]:
    """The next ready items."""
    if want.probes and want.only_first is not None:
        return (yield _ask_pick(want, min(share, len(want.probes)), 0))
    if want.probes:
        return (yield from _pick_probes(want, share))
    look, items = partial(_ask_pick, want, share), list[Picked]()
    if want.from_key:
        items = yield from fronts(str(want.from_key)).look(look, share, _order_key, want.from_key)
    if len(items) < share:
        known = {item.id for item in items}
        items = [
            *items,
            *(item for item in (yield from fronts().look(look, share, _order_key)) if item.id not in known),
        ]
    return items[:share]


def _ask_pick(want: Want, n: int, from_key: int) -> Ask:
    values = {"handler": want.handler, "n": n, "from_key": from_key}
    if want.only_job is None:
        return Ask("pick", values)
    first, after = item_range(want.only_job)
    if want.only_first is not None:
        after = min(after, first + want.only_first)
    return Ask("pick_of_job", {**values, "job_id": want.only_job, "first": first, "after": after})


def _pick_probes(want: Want, share: int) -> Script[list[Picked]]:
    """Items from the whole queue: at each place the item with the fewest calls. So an item that has just failed is not
    tried again at once, and one bad job at the head of the queue does not decide for all jobs."""
    if want.only_job is None:
        [edges] = yield Ask("queue_edges", {"handler": want.handler})
    else:
        [edges] = yield Ask("job_edges", {"job_id": want.only_job})
    low, high = edges["low"], edges["high"]
    chosen: dict[int, Picked] = {}
    for share_of_queue in want.probes[:share] if low is not None else ():
        items: list[Picked] = yield _ask_pick(want, PROBE_CHOICE, low + int(share_of_queue * (high - low)))
        left = [item for item in items if item.id not in chosen]
        if left:
            least = min(left, key=lambda item: item.calls)
            chosen[least.id] = least
    return list(chosen.values())


def _by_id(item: Claimed) -> int:
    return item.id


def _new_terms(items: Sequence[Claimed], known_jobs: Collection[int]) -> Script[list[JobTerms]]:
    """The terms of the jobs that the worker does not know yet. A claim that starts a job returns its terms itself."""
    returned = {item.job_id: item.terms for item in items if item.terms is not None}
    terms = [JobTerms(*json.loads(text)) for text in returned.values()]
    new = sorted({item.job_id for item in items}.difference(known_jobs, returned))
    if new:
        terms += yield Ask("start_jobs", batch=[(job_id,) for job_id in new])
    return terms
