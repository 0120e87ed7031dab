from tests.server.rig import Rig


async def test_the_service_starts_and_lives(rig: Rig) -> None:
    assert (await rig.holder(None).get("/livez")).json == {"status": "ok"}
    for verbose in ("verbose", "verbose=1", "verbose=true"):
        assert (await rig.holder(None).get(f"/readyz?{verbose}")).json["checks"] == {"database": "ok"}
    for silent in ("", "?verbose=0", "?verbose=false"):
        assert (await rig.holder(None).get(f"/readyz{silent}")).json == {"status": "ok"}


async def test_who_asks_for_what_is_not_there_is_told_what_is(sqlite_rig: Rig) -> None:
    astray = await sqlite_rig.holder(None).get("/nowhere")
    assert (astray.status, astray.json["detail"]) == (404, "this path does not exist")
    assert "/api/openapi.json" in astray.json["hint"]
    unserved = await sqlite_rig.ada.post("/v1/chat/completions", json={})
    assert "/v1/batches" in unserved.json["error"]["message"]
