"""What each request of a run weighs: the worst that its call can cost, and its tokens."""

from collections.abc import Mapping
from typing import Any, Self

from backstay.core.errors import UsageError
from backstay.llm.envelope import Request
from backstay.llm.formats import Parsed
from backstay.llm.prices import PriceList, given_price
from backstay.llm.tokens import estimate_fields
from backstay.run.order import Order


class Bounded:
    """Looks at every request before the first is sent: under a ceiling, each must have a worst case."""

    def __init__(self, order: Order) -> None:
        self._scales = Scales.of(order)

    def add(self, parsed: Parsed) -> None:
        self._scales.weigh(parsed.request, parsed.fields)

    def clear(self) -> None:
        """Nothing is added up."""


class Scales:
    """Remembers whether any request had no known price: then what the run costs is not known either."""

    def __init__(self, prices: PriceList, ceiling: bool) -> None:
        self._prices = prices
        self._ceiling = ceiling
        self.priced = True

    @classmethod
    def of(cls, order: Order) -> Self:
        endpoint = order.endpoints[-1]  # where a request may end up at last, and cost most
        prices = PriceList(endpoint.base_url, endpoint.lane, given_price(endpoint), order.output_tokens_default)
        return cls(prices, order.budget_micros is not None)

    def weigh(self, request: Request, fields: Mapping[str, Any]) -> tuple[int | None, int]:
        """Under a ceiling a request must have a worst case: one without could cost anything."""
        estimate = estimate_fields(request.url, request.body, fields)
        worst = self._prices.worst_of(estimate, fields)
        self.priced = self.priced and self._prices.price(fields) is not None
        if worst is None and self._ceiling:
            raise UsageError(
                f"nothing bounds what {request.custom_id!r} can cost, so no budget can be kept; nothing was sent",
                hint="give --price, and --max-output-tokens for requests that set no bound",
            )
        most = estimate.output_tokens_max
        return worst, estimate.input_tokens + (estimate.output_tokens_expected if most is None else most)
