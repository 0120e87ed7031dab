"""The example of SQLAlchemy: the job is part of the session's transaction."""

import pytest

from backstay import SyncBackstay
from tests.databases import fresh_database
from tests.integrations.programs import example

database_url = fresh_database("sqlite", later="postgres")


def test_an_order_and_its_job_exist_together_or_not_at_all(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = example("sqlalchemy_app", database_url, monkeypatch)
    shop.main()
    said = capsys.readouterr().out.splitlines()
    assert said == ["1-0 succeeded order 1 is converted", "refused: a.exe is not a PDF", "1 order"]
    with SyncBackstay(shop.app) as backstay:
        client = backstay.run(shop.app.open())
        assert [job.id for job in backstay.run(client.store.job_views.page(client.owner))] == [1]
    shop.engine.dispose()
