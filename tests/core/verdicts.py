"""A failure in one word for its code and one for its kind, at a moment that is known."""

from backstay.core.failures import Failure

NOW = 1_700_000_000_000  # Tue, 14 Nov 2023 22:13:20 GMT


def verdict(failure: Failure) -> str:
    return f"{failure.code} {failure.kind}"
