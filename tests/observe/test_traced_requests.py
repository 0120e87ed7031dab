"""LLM calls in a trace: OpenTelemetry's words, nothing secret, and providers are told only when it is wanted."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.cli.shell import Shell
from tests.observe.otlp import Collector, collector

# Each must stay where it is: the key, a header, the prompt, the name of a line, the answer, and what an error says.
CANARIES = ("canary-key", "canary-header", "canary-prompt", "canary-custom-id", "canary-answer", "canary-error")
ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "gpt-4o-mini",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "canary-answer"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
}


@contextmanager
def provider(heard: list[str | None]) -> Iterator[str]:
    """Serves one request, then refuses the other, and notes the traceparent of each. A refusal that comes first would
    be tried once more."""
    served = threading.Event()

    class Provider(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["content-length"]))
            heard.append(self.headers.get("traceparent"))
            refused = b'"refused"' in asked
            assert not refused or served.wait(30)
            said = json.dumps({"error": {"message": "canary-error"}} if refused else ANSWER).encode()
            self.send_response(400 if refused else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)
            served.set()

        def log_message(self, format: str, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()


def line(custom_id: str, user: str) -> str:
    body = {"model": "gpt-4o-mini", "max_tokens": 50, "user": user}
    body["messages"] = [{"role": "user", "content": "canary-prompt"}]
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}) + "\n"


def run(shell: Shell, url: str, receiver: Collector, **more: str) -> None:
    requests = shell.file(
        line("canary-custom-id-1", "served") + line("canary-custom-id-2", "refused"), "requests.jsonl"
    )
    options = ("--base-url", url, "--db", "sqlite:///runs.db", "--header", "x-more=MORE", "--out", "out.jsonl")
    environment = {"OPENAI_API_KEY": "canary-key-1234", "MORE": "canary-header-1234", "no_proxy": "127.0.0.1", **more}
    ran = shell.process("run", requests, *options, **receiver.environment, **environment)
    assert ran.code == 3, ran.err


@pytest.fixture
def receiver() -> Iterator[Collector]:
    with collector() as made:
        yield made


def test_a_call_is_described_without_what_is_secret(sqlite_shell: Shell, receiver: Collector) -> None:
    heard: list[str | None] = []
    with provider(heard) as url:
        run(sqlite_shell, url, receiver)
    calls = sorted(receiver.named("chat gpt-4o-mini"), key=lambda call: call.failed)
    assert len(calls) == 2
    said = calls[0].attributes
    assert (said["gen_ai.operation.name"], said["gen_ai.request.model"]) == ("chat", "gpt-4o-mini")
    assert (said["gen_ai.provider.name"], said["server.address"]) == ("127.0.0.1", "127.0.0.1")
    assert (said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"]) == (11, 7)
    assert (calls[1].failed, calls[1].attributes["error.type"]) == (True, "GW_4XX")
    assert calls[1].attributes["http.response.status_code"] == 400
    assert len({span.trace_id for span in receiver.spans}) == 1
    everything = b"".join(receiver.raw)
    assert [canary for canary in CANARIES if canary.encode() in everything] == []
    assert heard == [None, None], "a provider is nobody's tracing backend unless somebody says so"


@pytest.mark.slow
def test_providers_are_told_the_trace_when_it_is_wanted(sqlite_shell: Shell, receiver: Collector) -> None:
    heard: list[str | None] = []
    with provider(heard) as url:
        run(sqlite_shell, url, receiver, BACKSTAY_OTEL_TELL_PROVIDERS="1")
    calls = {f"00-{call.trace_id}-{call.span_id}-01" for call in receiver.named("chat ")}
    assert set(heard) == calls
