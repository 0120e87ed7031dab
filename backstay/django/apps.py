"""The application as Django lists it."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from typing_extensions import override


class BackstayConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    name = "backstay.django"
    label = "backstay"

    @override
    def ready(self) -> None:
        post_migrate.connect(prepare_sqlite)  # no sender: Django sends it only for applications with models


def prepare_sqlite(**_: Any) -> None:
    """`manage.py migrate` prepares the file of an application on SQLite, too. Otherwise the first use would, and that
    is often inside a transaction which has locked the file. PostgreSQL is prepared by `backstay migrate`."""
    from backstay.django import configured_app, shared_backstay
    from backstay.store.databases.database import is_postgres

    if not is_postgres(configured_app().url):
        shared_backstay()
