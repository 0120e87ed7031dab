"""A collector of the tests' own: takes spans over OTLP as protobuf, and shows them by what they say."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Seen:
    """One span as it came in."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start: int
    end: int
    failed: bool
    attributes: dict[str, Any]
    service: str


class Collector:
    def __init__(self, port: int) -> None:
        self.url = f"http://{HOST}:{port}"
        self.raw: list[bytes] = []

    @property
    def environment(self) -> dict[str, str]:
        return {"BACKSTAY_OTEL": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}

    @property
    def spans(self) -> list[Seen]:
        return [seen for body in list(self.raw) for seen in _spans(body)]

    def named(self, beginning: str) -> list[Seen]:
        return [seen for seen in self.spans if seen.name.startswith(beginning)]


def _spans(body: bytes) -> Iterator[Seen]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = {one.key: one.value.string_value for one in resource.resource.attributes}.get("service.name", "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                attributes = {one.key: _value(one.value) for one in span.attributes}
                ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                times = (span.start_time_unix_nano, span.end_time_unix_nano)
                yield Seen(span.name, *ids, span.kind, *times, span.status.code == 2, attributes, service)


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


@contextmanager
def collector() -> Iterator[Collector]:
    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.path == "/v1/traces"
            found.raw.append(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return

    with ThreadingHTTPServer((HOST, 0), Receiver) as server:
        found = Collector(server.server_port)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield found
        finally:
            server.shutdown()
