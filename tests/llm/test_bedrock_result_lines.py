"""What the lines of a job's results mean, and a request that has none."""

import json

import pytest

from backstay.core.models import Failed, Succeeded
from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.prices import LanePrices
from backstay.llm.providers.bedrock.batch_api import InvocationJob, reference_of
from backstay.llm.providers.bedrock.batches import BedrockResultReader

MODEL = "amazon.nova-pro-v1:0"


def reader(status: str, found: bool = True, told_all: bool = True) -> BedrockResultReader:
    job = InvocationJob("j", "backstay-1", status, MODEL, "Converse", "", None, 2, 1, "why")
    return BedrockResultReader(job, found, told_all, LanePrices(Endpoint("https://x", Lane.BATCH, api="bedrock")))


@pytest.mark.parametrize(
    ("status", "found", "told_all", "kind"),
    [
        ("Failed", False, True, "infrastructure"),
        ("Stopped", True, True, "infrastructure"),
        ("Expired", True, True, "infrastructure"),
        ("PartiallyCompleted", True, True, "infrastructure"),
        ("PartiallyCompleted", True, False, "unknown"),
        ("Expired", False, False, "unknown"),
        ("Completed", True, True, "unknown"),
        ("Completed", False, False, "unknown"),
    ],
)
def test_a_request_without_a_line_is_run_again_only_if_it_was_not_run(
    status: str, found: bool, told_all: bool, kind: str
) -> None:
    missing = reader(status, found, told_all).read_missing("0" * 40, 0)
    assert isinstance(missing.answer, Failed)
    assert (missing.answer.failure.kind, missing.answer.task_ended) == (kind, True)
    assert missing.cancelled is (status == "Stopped")


def test_lines_are_read_by_what_is_in_them() -> None:
    output = {"output": {"message": {}}, "stopReason": "max_tokens", "usage": {"inputTokens": 1000, "outputTokens": 10}}
    ref, at = "a" * 40, reader("Completed")
    for line in (
        {"recordId": ref, "modelInput": {}, "modelOutput": output},
        {"modelInput": {"recordId": "b" * 40}, "modelOutput": output, "recordId": ref},
    ):
        text = json.dumps(line)
        assert reference_of(text.encode()) == reference_of(text.encode() + b"\r\n") == ref
        read = at.read_line(text)
        assert read is not None
        assert isinstance(read.answer, Succeeded)
        assert read.answer.usage is not None
        assert (read.answer.flaw, read.answer.usage.cost_micros) == ("truncated", 416)
    for code, kind in ((400, "business"), ("ThrottlingException", "throttled"), (500, "infrastructure"), (None, None)):
        failed = at.read_line(json.dumps({"recordId": ref, "error": {"errorCode": code, "errorMessage": "no"}}))
        assert failed is not None
        assert isinstance(failed.answer, Failed)
        assert failed.answer.failure.kind == (kind or "infrastructure")
    for text in ("{}", '{"error": 3}', '{"modelOutput": []}'):
        assert at.read_line(text) is None
    for odd in (
        b"",
        b"[1]",
        b'{"recordId": 7}',
        b'{"recordId": "x"}',
        b"\xff",
        b'{"a":"\\"recordId\\":\\"%s\\"}' % (b"a" * 40),
    ):
        assert reference_of(odd) is None
