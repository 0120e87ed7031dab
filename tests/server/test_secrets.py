"""Secrets that are planted everywhere turn up nowhere: not in the log, not in an answer, not in the database."""

import os
import subprocess
from pathlib import Path

import pytest

from backstay.clock import new_id
from tests.house.sources import ROOT
from tests.server.canaries import TaggedCallback, Watched, canary, dump, form, line, repeating, spoken_to
from tests.server.pdfs import pdf
from tests.servers.redis import PrivateRedis
from tests.servers.s3 import BUCKET, PrivateS3
from tests.stories.runs import COMMAND

pytestmark = pytest.mark.slow

PLANTED = (
    "upstream",
    "redis",
    "signing",
    "gateway",
    "aws",
    "wrong",
    "basic",
    "azure",
    "asked",
    "header",
    "cookie",
    "field",
    "option",
    "hook",
    "callback",
    "database",
)


def planted() -> TaggedCallback:
    return TaggedCallback({name: canary(name) for name in PLANTED})


def environment(secrets: dict[str, str], neighbour: int, redis: PrivateRedis) -> dict[str, str]:
    return {
        "OPENAI_API_KEY": secrets["upstream"],
        "BACKSTAY_REDIS_URL": redis.url.replace("redis://", f"redis://:{secrets['redis']}@"),
        "BACKSTAY_SECRET_KEY": secrets["signing"] * 2,
        "BACKSTAY_GATEWAY_URL": f"http://me:{secrets['gateway']}@127.0.0.1:{neighbour}/convert",
        "BACKSTAY_INSIDE_HOSTS": f"127.0.0.1:{neighbour}",
        "BACKSTAY_PUBLIC_URL": "https://backstay.example",
        "BACKSTAY_RETRY_BASE_DELAY_MS": "50",
        "BACKSTAY_RETRY_JITTER_MAX_MS": "0",
    }


async def ask_wrongly(ask: Watched, secrets: dict[str, str], neighbour: int) -> None:
    """Everything in which a person puts a secret where it does not belong."""
    for headers in (
        {"authorization": f"Bearer {secrets['wrong']}"},
        {"authorization": f"Bearer bks_{secrets['wrong']}_{secrets['wrong']}"},
        {"authorization": f"Basic {secrets['basic']}"},
        {"authorization": secrets["basic"]},
        {"authorization": "", "api-key": secrets["azure"]},
    ):
        for path in ("/api/jobs", "/v1/batches", "/openai/files?api-version=1", "/nowhere"):
            assert (await ask("GET", path, headers=headers)).status in (401, 404)
    for path in (f"/api/jobs?api_key={secrets['asked']}", f"/v1/files?key={secrets['asked']}"):
        await ask("GET", path)
    target = f"http://127.0.0.1:{neighbour}/400"
    for name in ("authorization", "Cookie", "x-api-key", "proxy-authorization"):
        item = {"url": target, "payload": 1, "headers": {name: secrets["header"]}}
        refused = await ask("POST", "/api/jobs", json={"handler": "remote", "items": [item]})
        assert refused.status in (400, 422), refused
    jobs: list[dict[str, object]] = [
        {"handler": "remote", "items": [], "options": {"api_key": secrets["option"]}},
        {"handler": "remote", "items": [], "options": {"priority": secrets["option"]}},
        {"handler": "remote", "items": [{"url": target, "payload": 1, "headers": secrets["field"]}]},
        {"handler": "remote", "items": 7, "authorization": secrets["field"]},
        {"handler": "remote", "items": [{"url": f"http://me:{secrets['hook']}@10.0.0.1/", "payload": 1}]},
    ]
    for job in jobs:
        assert (await ask("POST", "/api/jobs", json=job, headers={"cookie": secrets["cookie"]})).status in (400, 422)
    hook = {"url": f"http://me:{secrets['hook']}@127.0.0.1:{neighbour}/"}
    assert (await ask("POST", "/api/webhooks", json=hook)).status in (400, 422)
    broken = f'{{"url": "{secrets["hook"]}'
    assert (await ask("POST", "/api/webhooks", data=broken, headers={"content-type": "application/json"})).status == 422
    assert (await ask("POST", f"/callbacks/1-0/1/{secrets['callback']}", json={"status": "progress"})).status == 404


async def meet_refusals(ask: Watched, secrets: dict[str, str], neighbour: int) -> None:
    """Neighbours refuse, and repeat with it the secrets that they were sent."""
    given = {"url": f"http://127.0.0.1:{neighbour}/hook"}
    keyed = {"idempotency-key": "a name, and no secret"}
    made = (await ask.shown_once("/api/webhooks", "secret", method="POST", json=given, headers=keyed)).json["id"]
    await ask.shown_once(f"/api/webhooks/{made}/rotate", "secret", method="POST")
    await ask.shown_once("/api/remote/secret", "secret", method="GET")
    assert (await ask("POST", f"/api/webhooks/{made}/test")).status in (200, 201, 202)
    await ask.until(f"/api/webhooks/{made}/deliveries", lambda found: found["data"][0]["last_status"] == 500)
    item = {"url": f"http://127.0.0.1:{neighbour}/400", "payload": 1}
    remote = (await ask("POST", "/api/jobs", json={"handler": "remote", "items": [item]})).json["id"]
    await ask.until(f"/api/jobs/{remote}", lambda job: job["state"] == "failed" or job["failed"])
    source = (await ask("POST", "/api/uploads", data=form("a.pdf", pdf("a")))).json["id"]
    converted = (await ask("POST", "/api/jobs", json={"handler": "gateway", "items": [{"file": source}]})).json["id"]
    await ask.until(f"/api/items/{converted}-0/timeline", lambda item: item["attempts"])
    await ask("GET", f"/api/items/{converted}-0/log")
    await ask("GET", "/v1/models")
    lines = line(0, "400") + line(1, "500") + line(2, "401")
    file = (await ask("POST", "/v1/files", data=form("in.jsonl", lines, purpose="batch"))).json["id"]
    wanted = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = (await ask("POST", "/v1/batches", json=wanted)).json["id"]
    await ask.until("/api/providers", lambda found: any(one["state"] == "held" for one in found["data"]))
    await ask.until(f"/v1/batches/{batch}", lambda found: found["request_counts"]["failed"])
    await ask("GET", f"/v1/batches/{batch}/errors")
    for path in (
        "/readyz?verbose",
        "/api/jobs",
        "/api/dead-letters",
        "/api/stats",
        "/api/workers",
        "/v1/webhook_endpoints",
    ):
        assert (await ask("GET", path)).status == 200


async def test_planted_secrets_are_in_no_log_answer_table_or_artifact(
    database_url: str, tmp_path: Path, unused_tcp_port: int
) -> None:
    told = planted()
    secrets, log = dict(told.secrets), tmp_path / "log"
    url = database_url.replace("://postgres@", f"://postgres:{secrets['database']}@")
    with PrivateRedis() as redis:
        async with repeating() as neighbour:
            base = ("--db", url, "--base-url", f"http://127.0.0.1:{neighbour}/v1", "--data", str(tmp_path / "data"))
            given = environment(secrets, neighbour, redis)
            async with spoken_to(url, base, given, told, unused_tcp_port, log) as ask:
                await ask_wrongly(ask, secrets, neighbour)
                await meet_refusals(ask, secrets, neighbour)
    told.said |= await dump(url)
    told.said |= {f"artifact {path}": path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
    assert len(told.secrets) == len(PLANTED) + 4
    assert b"items submitted" in told.said["the log"], "it would have been seen"
    assert b"refused" in b"".join(text for name, text in told.said.items() if name.startswith("table"))
    assert told.leaks() == []


async def test_a_place_of_files_that_goes_away_takes_its_keys_with_it(
    sqlite_file_url: str, tmp_path: Path, unused_tcp_port: int
) -> None:
    told = planted()
    with PrivateS3().running() as s3:
        given = {**s3.environment, "AWS_SECRET_ACCESS_KEY": told.secrets["aws"], "BACKSTAY_SECRET_KEY": "k" * 32}
        base = ("--db", sqlite_file_url, "--data", f"s3://{BUCKET}/{new_id()}")
        async with spoken_to(sqlite_file_url, base, given, told, unused_tcp_port, tmp_path / "log") as ask:
            made = await ask("POST", "/api/uploads", data=form("a.pdf", pdf("a")))
            assert made.status == 201
            s3.client.delete_object(Bucket=BUCKET, Key=next(iter(s3.objects())))
            await ask("GET", f"/api/uploads/{made.json['id']}/content")
    told.said |= await dump(sqlite_file_url)
    assert told.leaks() == []


@pytest.mark.parametrize(
    "setting",
    [
        "BACKSTAY_SECRET_KEY={:.20}",
        "BACKSTAY_DATABASE_URL=postgresql://me:{}@127.0.0.1:1/x",
        "BACKSTAY_DATABASE_URL=mysql://me:{}@127.0.0.1/x",
        "BACKSTAY_DATABASE_URL=postgresql://me:{}@[/x",
        "BACKSTAY_REDIS_URL=redis://:{}@127.0.0.1:no/0",
        "BACKSTAY_REDIS_URL=http://:{}@127.0.0.1/0",
        "BACKSTAY_GATEWAY_URL=ftp://me:{}@127.0.0.1/",
        "BACKSTAY_GATEWAY_URL=http://me:{}@[/",
    ],
)
def test_a_service_that_does_not_start_does_not_tell_its_settings(setting: str, tmp_path: Path) -> None:
    secret = canary("s")
    name, _, value = setting.partition("=")
    given = {"BACKSTAY_DATABASE_URL": f"sqlite:///{tmp_path}/a.db", name: value.format(secret)}
    command = [*COMMAND, "serve", "--port", "0", "--log-level", "debug"]
    environment = {**os.environ, "BACKSTAY_START_WAIT_SECONDS": "0", **given}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode != 0
    assert ran.stdout + ran.stderr
    assert secret not in ran.stdout + ran.stderr
