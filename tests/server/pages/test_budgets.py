"""The page Safety: who sees which budgets, and whose spending."""

from backstay.core.money import Period
from backstay.store.keys import Role
from tests.server.pages.reader import reader
from tests.server.rig import Rig

SHARED, OTHERS = "$77.00", "$33.00"


async def test_an_operator_sees_all_budgets_and_an_owner_only_their_own_use(sqlite_rig: Rig) -> None:
    budgets = sqlite_rig.service.store.budgets
    await budgets.set("", "", Period.MONTH, 77_000_000)
    await budgets.set("bob", "", Period.TOTAL, 33_000_000)
    operator = (await (await reader(sqlite_rig)).held("/safety")).text
    assert SHARED in operator
    assert OTHERS in operator
    assert "for operators" not in operator
    reading = (await (await reader(sqlite_rig, "ada", Role.READ)).held("/safety")).text
    assert SHARED in reading
    assert OTHERS not in reading
    assert "for operators" in reading
    own = (await (await reader(sqlite_rig, "bob")).held("/safety")).text
    assert OTHERS in own
    assert "for operators" in own
