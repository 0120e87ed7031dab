"""Every operation of the API: which role it takes, what it is given, and whose things its path names."""

from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from backstay.core.callbacks import Callback, Kind
from backstay.core.ids import read_item
from backstay.core.models import NewSchedule
from backstay.store.batches import NewBatch
from backstay.store.keys import Role
from tests.server.pdfs import pdf
from tests.server.receiver import Receiver
from tests.server.rig import Rig, Visitor

READ, WRITE, ADMIN = Role

# A new route is red until someone has said here who may use it.
ROLES: Final[dict[str, Role]] = {
    "POST /api/jobs": WRITE,
    "GET /api/jobs": READ,
    "GET /api/jobs/{job_id}": READ,
    "DELETE /api/jobs/{job_id}": WRITE,
    "GET /api/jobs/{job_id}/why": READ,
    "POST /api/jobs/{job_id}/pause": WRITE,
    "POST /api/jobs/{job_id}/resume": WRITE,
    "POST /api/jobs/{job_id}/cancel": WRITE,
    "POST /api/jobs/{job_id}/retry": WRITE,
    "POST /api/jobs/{job_id}/settle-unknown": WRITE,
    "GET /api/jobs/{job_id}/items": READ,
    "GET /api/jobs/{job_id}/results": READ,
    "GET /api/jobs/{job_id}/events": READ,
    "GET /api/items/{item_id}": READ,
    "GET /api/items/{item_id}/why": READ,
    "GET /api/items/{item_id}/timeline": READ,
    "POST /api/items/{item_id}/retry": WRITE,
    "GET /api/items/{item_id}/result": READ,
    "GET /api/items/{item_id}/log": READ,
    "GET /api/items/{item_id}/events": READ,
    "POST /api/uploads": WRITE,
    "GET /api/uploads": READ,
    "GET /api/uploads/{file_id}": READ,
    "DELETE /api/uploads/{file_id}": WRITE,
    "GET /api/uploads/{file_id}/content": READ,
    "GET /api/dead-letters": READ,
    "GET /api/dead-letters/groups": READ,
    "GET /api/dead-letters/{item_id}": READ,
    "POST /api/dead-letters/replay": WRITE,
    "GET /api/dead-letters/replays": READ,
    "GET /api/dead-letters/archives": READ,
    "POST /api/dead-letters/archive": ADMIN,
    "POST /api/dead-letters/archives/{archive_id}/restore": ADMIN,
    "GET /api/providers": READ,
    "GET /api/providers/{provider}": READ,
    "POST /api/providers/{provider}/hold": ADMIN,
    "POST /api/providers/{provider}/release": ADMIN,
    "GET /api/schedules": READ,
    "POST /api/schedules/{schedule}/pause": WRITE,
    "POST /api/schedules/{schedule}/resume": WRITE,
    "POST /api/schedules/{schedule}/run": WRITE,
    "GET /api/stats": READ,
    "GET /api/workers": ADMIN,
    "GET /api/alarms": ADMIN,
    "POST /api/webhooks": WRITE,
    "GET /api/webhooks": READ,
    "GET /api/webhooks/{webhook_id}": READ,
    "PATCH /api/webhooks/{webhook_id}": WRITE,
    "DELETE /api/webhooks/{webhook_id}": WRITE,
    "POST /api/webhooks/{webhook_id}/rotate": WRITE,
    "POST /api/webhooks/{webhook_id}/test": WRITE,
    "GET /api/webhooks/{webhook_id}/deliveries": READ,
    "POST /api/webhooks/{webhook_id}/deliveries/{delivery_id}/resend": WRITE,
    "POST /api/webhooks/{webhook_id}/resend": WRITE,
    "GET /api/remote/secret": ADMIN,
    "GET /api/late-results": READ,
    "GET /api/late-results/{late_id}": READ,
    "POST /api/late-results/{late_id}/accept": ADMIN,
    "POST /v1/files": WRITE,
    "GET /v1/files": READ,
    "GET /v1/files/{file_id}": READ,
    "DELETE /v1/files/{file_id}": WRITE,
    "GET /v1/files/{file_id}/content": READ,
    "POST /v1/batches": WRITE,
    "GET /v1/batches": READ,
    "GET /v1/batches/{batch_id}": READ,
    "POST /v1/batches/{batch_id}/cancel": WRITE,
    "GET /v1/batches/{batch_id}/output": READ,
    "GET /v1/batches/{batch_id}/errors": READ,
    "GET /v1/batches/{batch_id}/why": READ,
    "POST /v1/messages/batches": WRITE,
    "GET /v1/messages/batches": READ,
    "GET /v1/messages/batches/{message_batch_id}": READ,
    "POST /v1/messages/batches/{message_batch_id}/cancel": WRITE,
    "DELETE /v1/messages/batches/{message_batch_id}": WRITE,
    "GET /v1/messages/batches/{message_batch_id}/results": READ,
    "GET /v1/models": READ,
    "GET /v1/models/{model_id}": READ,
    "GET /v1/webhook_event_types": READ,
    "POST /v1/webhook_endpoints": WRITE,
    "GET /v1/webhook_endpoints": READ,
    "GET /v1/webhook_endpoints/{endpoint_id}": READ,
    "POST /v1/webhook_endpoints/{endpoint_id}": WRITE,
    "DELETE /v1/webhook_endpoints/{endpoint_id}": WRITE,
    "POST /v1/webhook_endpoints/{endpoint_id}/rotate_secret": WRITE,
    "POST /v1/webhook_endpoints/{endpoint_id}/test": WRITE,
}
# What is felt by all owners, so that an admin of another owner may not do it.
OPERATED: Final = {
    "POST /api/providers/{provider}/hold",
    "POST /api/providers/{provider}/release",
    "GET /api/alarms",
}
# Asked without a key: whether it lives, its description, and where answers come in, by addresses nobody can guess.
OPEN: Final = {
    "/livez",
    "/readyz",
    "/api/openapi.json",
    "/callbacks/{item}/{fence}/{tag}",
}
# What all owners have in common; everything else that a path names is somebody's.
SHARED: Final = {"provider", "model_id"}
SHARED_LISTS: Final = {
    "GET /api/providers",
    "GET /api/workers",
    "GET /api/alarms",
    "GET /v1/models",
    "GET /v1/webhook_event_types",
}
LINE: Final = (
    '{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", '
    '"body": {"model": "m", "messages": [{"role": "user", "content": "hello"}]}}\n'
)


@dataclass(slots=True)
class Things:
    """What ada has, by the names that paths use."""

    named: dict[str, str] = field(default_factory=dict)
    webhook_url: str = ""

    def path(self, template: str) -> str:
        """Uploads and OpenAI's files are both files; an operation is given one of its own kind."""
        upload = "/api/uploads" in template
        return template.format(**{**self.named, **({"file_id": self.named["upload_id"]} if upload else {})})

    def body(self, operation: str) -> dict[str, Any]:
        """What aiohttp is given to send."""
        method, _, path = operation.partition(" ")
        if path in ("/api/uploads", "/v1/files") and method == "POST":
            return {"data": form_of(path)}
        bodies: dict[str, Any] = {
            "POST /api/jobs": {"handler": "echo", "items": [1]},
            "POST /api/jobs/{job_id}/settle-unknown": {"act": "book", "expected_micros": 5},
            "POST /api/dead-letters/replay": {"dry_run": True},
            "POST /api/dead-letters/archive": {"job": "0"},
            "POST /api/webhooks": {"url": self.webhook_url},
            "PATCH /api/webhooks/{webhook_id}": {"name": "mine"},
            "POST /api/providers/{provider}/hold": {"reason": "a test", "seconds": 1},
            "POST /v1/webhook_endpoints": {"url": self.webhook_url, "name": "mine", "event_types": ["batch.completed"]},
            "POST /v1/webhook_endpoints/{endpoint_id}": {"name": "mine"},
            "POST /v1/webhook_endpoints/{endpoint_id}/test": {"event_type": "batch.completed"},
            "POST /v1/batches": {
                "input_file_id": self.named["file_id"],
                "endpoint": "/v1/chat/completions",
                "completion_window": "24h",
            },
        }
        return {"json": bodies[operation]} if operation in bodies else {}


def form_of(path: str) -> aiohttp.FormData:
    form = aiohttp.FormData()
    if path == "/v1/files":
        form.add_field("purpose", "batch")
        form.add_field("file", LINE, filename="in.jsonl")
    else:
        form.add_field("file", pdf("mine"), filename="a.pdf", content_type="application/pdf")
    return form


async def archived_and_replayed(ada: Visitor, rig: Rig) -> str:
    """An archive with a letter of a job of its own, and a replay of another."""
    job = await rig.submit("fail_as_told", [{"code": "NOT_PDF"}, {"code": "GW_5XX"}])
    await rig.work()
    await ada.post("/api/dead-letters/archive", json={"job": job, "code": "NOT_PDF"})
    await ada.post("/api/dead-letters/replay", json={"job": job})
    return str((await ada.get("/api/dead-letters/archives")).json["data"][0]["id"])


async def made_by_ada(rig: Rig, receiver: Receiver) -> Things:
    """One of everything that an id can name."""
    ada, things = rig.ada, Things(webhook_url=receiver.url)
    job = await rig.submit("fail_as_told", [{"code": "GW_4XX"}, {}])
    await rig.work()
    item = read_item(f"{job}-0")
    await rig.service.store.inbox.receive(item, 1, Callback(Kind.SUCCEEDED, '{"result": 7}'))
    late = (await ada.get("/api/late-results")).json["data"][0]["id"]
    webhook = (await ada.post("/api/webhooks", json={"url": receiver.url})).json["id"]
    endpoint = (await ada.post("/api/webhooks", json={"url": receiver.url})).json["id"]
    await ada.post(f"/api/webhooks/{webhook}/test")
    delivery = (await ada.get(f"/api/webhooks/{webhook}/deliveries")).json["data"][0]["id"]
    upload = (await ada.post("/api/uploads", data=form_of("/api/uploads"))).json["id"]
    file = (await ada.post("/v1/files", data=form_of("/v1/files"))).json["id"]
    things.named = {
        "job_id": job,
        "item_id": f"{job}-0",
        "late_id": late,
        "webhook_id": webhook,
        "endpoint_id": endpoint,
    }
    things.named["archive_id"] = await archived_and_replayed(ada, rig)
    things.named |= {"delivery_id": delivery, "upload_id": upload, "file_id": file, "provider": "echo", "model_id": "m"}
    made = await ada.post("/v1/batches", **things.body("POST /v1/batches"))
    things.named["batch_id"] = made.json["id"]
    new = NewBatch("msgbatch_mine", "ada", "/v1/messages", file, "24h", 86_400_000, None, None)
    await rig.service.store.batches.create(new, None)
    things.named["message_batch_id"] = new.id
    things.named["schedule"] = "nightly-report"
    await rig.service.store.schedules.add(NewSchedule("nightly-report", "echo", "0 2 * * *"), "ada")
    return things
