"""Where spans go: over OTLP to what the OTEL_ variables name, unless the application has a provider of its own."""

import logging
import os
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

Tell = Callable[[str], None]

_SERVICE: Final = "service.name"


class Telling(SpanExporter):
    """An exporter that tells once when spans are not taken, and once more when they are again."""

    def __init__(self, exporter: SpanExporter, tell: Tell) -> None:
        self._exporter = exporter
        self._tell = tell
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception:  # a collector's trouble is never the work's
            result = SpanExportResult.FAILURE
        failed = result is not SpanExportResult.SUCCESS
        if failed != self._failing:
            self._failing = failed
            self._tell(
                "the trace collector refuses spans; they are dropped"
                if failed
                else "the trace collector accepts spans again"
            )
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def provider_here(tell: Tell) -> trace.TracerProvider:
    """The application's own, if it has set one; else one of ours, which the whole process shares from then on."""
    found = trace.get_tracer_provider()
    if isinstance(found, TracerProvider):
        return found
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # what matters is told as an event
    named = os.environ.get("OTEL_SERVICE_NAME") or _SERVICE in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    made = TracerProvider(resource=Resource.create({} if named else {_SERVICE: "backstay"}))
    made.add_span_processor(BatchSpanProcessor(Telling(OTLPSpanExporter(), tell)))
    trace.set_tracer_provider(made)
    return made
