"""Three sets of limits to start from: less risk, the default, more throughput."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from backstay.core.errors import UsageError
from backstay.core.limits import Limits

PROFILES: Final[Mapping[str, Limits]] = MappingProxyType(
    {
        "conservative": Limits(
            item_timeout_seconds=3_600,
            job_timeout_seconds=86_400,
            llm_item_timeout_seconds=172_800,
            llm_job_timeout_seconds=259_200,
            chain_depth_max=1,
            call_retries_max=3,
        ),
        "balanced": Limits(),
        "aggressive": Limits(
            item_timeout_seconds=14_400,
            job_timeout_seconds=345_600,
            llm_item_timeout_seconds=1_209_600,
            llm_job_timeout_seconds=2_592_000,
            chain_depth_max=5,
            call_retries_max=10,
        ),
    }
)


def profile_named(name: str) -> Limits:
    limits = PROFILES.get(name)
    if limits is None:
        raise UsageError(f"there is no profile {name!r}; choose from {', '.join(PROFILES)}")
    return limits
