"""For tests of your handlers: virtual time, a database in memory, and a paid provider that keeps its bill.

@virtual_time
async def test_a_lost_reply_is_looked_up_and_not_paid_again():
    async with rehearsal(app):
        job = await app.submit("shout", ["hello"])
        await drain(app)
        await assert_paid_once(provider, job)
"""

from backstay.testing.provider import (
    Chances,
    Charge,
    Reply,
    Replying,
    ScriptedProvider,
    broken,
    hanging,
    lost,
    ok,
    refused,
    throttled,
)
from backstay.testing.rehearsal import (
    EverythingWaits,
    InlineSQLite,
    VirtualClock,
    VirtualLoop,
    assert_paid_once,
    drain,
    rehearsal,
    virtual_time,
)

__all__ = [
    "Chances",
    "Charge",
    "EverythingWaits",
    "InlineSQLite",
    "Reply",
    "Replying",
    "ScriptedProvider",
    "VirtualClock",
    "VirtualLoop",
    "assert_paid_once",
    "broken",
    "drain",
    "hanging",
    "lost",
    "ok",
    "refused",
    "rehearsal",
    "throttled",
    "virtual_time",
]
