"""A stand-in of Lambda's Invoke API over HTTP, and of the service behind it: what was asked for is run in its turn."""

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from backstay.aws_lambda import handler

ARN = "arn:aws:lambda:eu-central-1:123456789012:function:backstay-tick:live"
PATH = f"/2015-03-31/functions/{ARN}/invocations"


class LambdaContext:
    """What the service hands to the function, as far as it looks at it."""

    invoked_function_arn = ARN
    function_name = "backstay-tick"

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return int((self._end - time.monotonic()) * 1000)


class InvokeApi:
    """Takes asynchronous invocations; `refusal` is the status that it answers with instead."""

    def __init__(self) -> None:
        self.url = ""
        self.refusal: int | None = None
        self.asked: list[Any] = []
        self._waiting: deque[Any] = deque()

    def take(self, path: str, kind: str | None, body: bytes) -> int:
        assert unquote(path) == PATH
        assert kind == "Event"
        if self.refusal is not None:
            return self.refusal
        self.asked.append(json.loads(body))
        self._waiting.append(self.asked[-1])
        return 202

    def trigger(self, event: dict[str, Any] | None = None, seconds: float = 600) -> list[dict[str, Any]]:
        """One scheduled invocation and those that follow from it, until none was asked for."""
        reports = [handler(event or {"source": "aws.scheduler"}, LambdaContext(seconds))]
        while self._waiting:
            reports.append(handler(self._waiting.popleft(), LambdaContext(seconds)))
        return reports

    @contextmanager
    def serving(self) -> Iterator["InvokeApi"]:
        api = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status = api.take(self.path, self.headers["x-amz-invocation-type"], body)
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                """Nobody reads it."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
            self.url = f"http://127.0.0.1:{server.server_port}"
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()
