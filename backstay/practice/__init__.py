"""The practice provider: an OpenAI-compatible stand-in with faults on request that keeps a bill.

async with Practice(Faults(latency=0.2, fail=0.05)).serving() as base_url:
    ...  # send requests to base_url
"""

from backstay.practice.app import Practice
from backstay.practice.faults import Faults
from backstay.practice.openai_calls import answer_to

__all__ = ["Faults", "Practice", "answer_to"]
