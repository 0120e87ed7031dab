"""An application with a handler that does nothing, for `backstay serve --app bench.noop:app`."""

from __future__ import annotations

from typing import Any

from backstay import Backstay

app = Backstay()


@app.handler(concurrency=1_000)
async def noop(item: Any) -> Any:
    return item
