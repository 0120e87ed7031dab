"""Which tests go to the same process: those of one file, because they share servers, databases and other set-up.

Stories take long and share little, so each goes where there is room. The browsers' tests are together: one browser.
"""

from xdist.scheduler import LoadScopeScheduling


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        if "test_browser" in path:
            return "browser"
        return nodeid if path.startswith("tests/stories/") else path
