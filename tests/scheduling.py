"""Which tests go to the same process: those of a file whose set-up is dear; all others go wherever there is room.

xdist has a mark for it, `xdist_group`, which does nothing under pytest 9.2: it writes into a field that is gone.
"""

from xdist.scheduler import LoadScopeScheduling

TOGETHER = (
    "tests/store/test_plans.py",
    "tests/store/test_file_plans.py",
    "tests/doctor/test_faults.py",
    "tests/server/pages/test_browser_flows.py",
    "tests/server/pages/test_browser_live.py",
)


class DearTogether(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        return "browser" if "test_browser" in path else path if path in TOGETHER else nodeid
