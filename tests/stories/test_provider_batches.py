"""Batches of every provider that has them, in runs that are killed: each request is answered and paid for once."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.stories.runs import Provider, Rehearsal, paid_again, practice

# A new process asks again about what may have been sent when its lease runs out; and a batch that is not listed is
# sent again after this time.
SHORT_LAG = {"BACKSTAY_LEASE_SECONDS": "3", "BACKSTAY_HEARTBEAT_SECONDS": "1", "BACKSTAY_BATCH_LAG_SECONDS": "2"}


class Place(NamedTuple):
    """Where the practice provider answers as this provider does, and what it is asked for there."""

    path: str
    model: str
    surroundings: Mapping[str, str] = {}


PLACES = {
    "anthropic": Place("/v1", "claude-sonnet-5"),
    "azure": Place("", "gpt-4o-mini", {"AZURE_OPENAI_API_KEY": "practice"}),
    "bedrock": Place(
        "",
        "amazon.nova-pro-v1:0",
        {
            "AWS_ENDPOINT_URL_S3": "{root}/s3",
            "BEDROCK_BATCH_BUCKET": "s3://stories/of/runs",
            "BEDROCK_BATCH_ROLE_ARN": "arn:aws:iam::000000000000:role/practice",
            "BEDROCK_BATCH_RECORDS_MIN": "1",
            "AWS_ACCESS_KEY_ID": "AKIAPRACTICE00000000",
            "AWS_SECRET_ACCESS_KEY": "practice-secret-0123456789",
            "AWS_REGION": "us-east-1",
        },
    ),
    "gemini": Place("/v1", "gemini-2.5-flash", {"GEMINI_API_KEY": "practice"}),
    "groq": Place("", "llama-3.3-70b-versatile"),
    "mistral": Place("/mistral/v1", "mistral-small-latest"),
    "together": Place("/together/v1", "meta-llama/Llama-3.3-70B-Instruct-Turbo"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize(
    ("count", "kills"), [(200, 2), pytest.param(5_000, 20, marks=pytest.mark.storm)], ids=["short", "long"]
)
def test_batches_killed_at_random_moments_are_found_again_and_never_paid_twice(
    tmp_path: Path, name: str, count: int, kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = PLACES[name]
    with practice("--seed", "3", "--batch-seconds", "2", "--fail", "0.01") as provider:
        root = provider.base_url.removesuffix("/v1")
        for variable, value in {**SHORT_LAG, **place.surroundings}.items():
            monkeypatch.setenv(variable, value.format(root=root))
        options = ("--provider", name, "--concurrency", "20", "--lane", "batch", "--timeout", "10", "--json")
        run = Rehearsal(tmp_path, Provider(root + place.path, root), f"sqlite:///{tmp_path}/runs.db", *options)
        run.requests(count, model=place.model)
        run.rage(kills, (1.0, 2.5), seed=3)
        assert run.finish() == 0, run.log
        assert run.kills == kills, "it ended before it was killed so often"
        run.check_complete(count)
        assert (provider.bill()["charged"], paid_again(provider.bill())) == (count, 0)
