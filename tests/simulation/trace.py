"""What happened in a world, line by line, and which rare situations were reached."""

from collections import Counter

from backstay.core.events import (
    BreakerChanged,
    Event,
    ItemsClaimed,
    ItemsExpired,
    ItemsRescued,
    ItemsSettled,
    LeasesLost,
    Trouble,
)
from backstay.core.ids import show_item
from backstay.testing import VirtualClock


class Trace:
    def __init__(self) -> None:
        self.clock: VirtualClock = VirtualClock()
        self.lines: list[str] = []
        self.probes: Counter[str] = Counter()
        self._labels: dict[str, str] = {}

    def say(self, who: str, what: str) -> None:
        self.lines.append(f"{self.clock.seconds:9.4f} {who:20} {what}")

    def reached(self, probe: str) -> None:
        self.probes[probe] += 1

    def label(self, ref: str) -> str:
        """References are random; their order of appearance is not."""
        return self._labels.setdefault(ref, f"request-{len(self._labels) + 1}")

    def event(self, who: str, event: Event) -> None:
        match event:
            case ItemsSettled():
                for settlement in event.settlements:
                    item = show_item(settlement.id)
                    act = f" ({settlement.act}: {settlement.detail})" if settlement.act else ""
                    self.say(who, f"settled {item} fence {settlement.fence} {settlement.state}{act}")
                    if settlement.act:
                        self.reached(f"settled: {settlement.act}")
            case ItemsClaimed():
                self.say(who, f"claimed {event.items}")
            case ItemsRescued():
                self.say(who, f"rescued {event.items}")
                self.reached("rescued")
            case ItemsExpired():
                self.reached("past the deadline")
            case LeasesLost():
                self.say(who, f"lost {', '.join(map(show_item, event.items))}")
            case BreakerChanged():
                self.say(who, f"breaker {event.before.state} -> {event.after.state}")
                self.reached(f"breaker {event.after.state}")
            case Trouble():
                self.say(who, f"trouble: {event.where}: {event.message}")
            case _:
                pass
