"""What a person asks of a run, and which run that is: the same file and terms again are the same run."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.shards import BATCH_REQUESTS_MAX


@dataclass(frozen=True, slots=True)
class Order:
    endpoint: Endpoint
    out: str | Path
    errors: str | Path | None = None
    concurrency: int = 100
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    budget_micros: int | None = None
    output_tokens_default: int | None = None  # what a request may answer that sets no bound itself
    delivery: str | None = None
    deadline_seconds: float | None = None
    call_instead: Endpoint | None = None  # where what the batches cannot do in time goes
    ordered: bool = False
    dedupe: bool = False
    new: bool = False
    retry_failed: bool = False
    wait: bool = False  # keep trying, whatever the first replies are
    label: str | None = None

    @property
    def move_seconds(self) -> float | None:
        """After this time what the batches have not done is called: the last quarter of the deadline is left for it."""
        if self.call_instead is None or self.deadline_seconds is None:
            return None
        return self.deadline_seconds * 3 / 4

    @property
    def slots(self) -> int:
        """How many requests the run's own worker holds at once."""
        return self.concurrency if self.endpoint.lane is not Lane.BATCH else BATCH_REQUESTS_MAX

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return (self.endpoint,) if self.call_instead is None else (self.endpoint, self.call_instead)

    def key(self, digest: str, number: int) -> str:
        """Names the run in the database: what would be sent, where to and how, and which of the runs of that it is.

        Limits, money and where the results go may change from one try to the next.
        """
        terms = "\0".join((digest, self.endpoint.dump(), str(self.delivery), str(self.dedupe)))
        return f"run:{hashlib.sha256(terms.encode()).hexdigest()[:40]}:{number}"
