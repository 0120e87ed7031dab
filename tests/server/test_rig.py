from tests.server.rig import Rig


async def test_the_service_starts_and_lives(rig: Rig) -> None:
    assert (await rig.holder(None).get("/livez")).json == {"status": "ok"}
    assert (await rig.holder(None).get("/readyz", params={"verbose": "true"})).json["checks"] == {"database": "ok"}
