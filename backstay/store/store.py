"""The store: one class for each noun, all on one database."""

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from backstay.clock import Clock
from backstay.store.alarms import Alarms
from backstay.store.archives import Archives
from backstay.store.batches import Batches
from backstay.store.budgets import Budgets
from backstay.store.databases.database import Database
from backstay.store.databases.user_connection import read_place, use_connection
from backstay.store.dead_letters import DeadLetters, Replays
from backstay.store.files import Files
from backstay.store.inbox import InboxMessages
from backstay.store.item_views import EventViews, ItemViews
from backstay.store.items import Items
from backstay.store.job_counts import Counters
from backstay.store.job_links import JobLinks
from backstay.store.job_views import JobViews
from backstay.store.jobs import Jobs, Pruning
from backstay.store.keys import Keys, Replies
from backstay.store.measures import Measures
from backstay.store.outbox import Outbox
from backstay.store.providers import Providers
from backstay.store.results import ResultViews
from backstay.store.schedules import Schedules
from backstay.store.submissions import AnswerKeys, Submissions
from backstay.store.sweeps import Sweeps
from backstay.store.webhooks import Webhooks
from backstay.store.workers import Duties, Invocations, Workers


class Store:
    """All changes of state. Any number of processes may call all methods at once."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._place: str | None = None
        self._checked: WeakSet[Any] = WeakSet()  # users' connections that lead here
        self.alarms = Alarms(database)
        self.answers = AnswerKeys(database)
        self.archives = Archives(database)
        self.batches = Batches(database)
        self.budgets = Budgets(database)
        self.dead_letters = DeadLetters(database)
        self.duties = Duties(database)
        self.events = EventViews(database)
        self.files = Files(database)
        self.inbox = InboxMessages(database)
        self.invocations = Invocations(database)
        self.counters = Counters(database)
        self.items = Items(database, self.counters.large)
        self.item_views = ItemViews(database)
        self.job_links = JobLinks(database)
        self.job_views = JobViews(database)
        self.jobs = Jobs(database)
        self.keys = Keys(database)
        self.measures = Measures(database)
        self.outbox = Outbox(database)
        self.providers = Providers(database)
        self.pruning = Pruning(database)
        self.replays = Replays(database)
        self.replies = Replies(database)
        self.results = ResultViews(database)
        self.schedules = Schedules(database)
        self.submissions = Submissions(database)
        self.sweeps = Sweeps(database)
        self.webhooks = Webhooks(database)
        self.workers = Workers(database)

    @property
    def clock(self) -> Clock:
        """Of the database: on PostgreSQL it follows the server's."""
        return self._db.clock

    async def open(self) -> None:
        await self._db.open()

    async def close(self) -> None:
        await self._db.close()

    async def notify(self) -> None:
        await self._db.notify()

    async def listen(self, wake: Callable[[], None]) -> None:
        await self._db.listen(wake)

    async def place(self) -> str:
        """A text that is the same for every connection to these tables, and for no other."""
        if self._place is None:
            self._place = await self._db.read(read_place)
        return self._place

    async def inside(self, connection: object, clock: Clock) -> "Store":
        """The same store on a user's connection: its changes are visible when the user commits."""
        return Store(await use_connection(connection, self._db, clock, await self.place(), self._checked))
