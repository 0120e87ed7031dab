"""`manage.py backstay_worker`: `backstay worker`, with Django set up and the application that the settings name."""

from typing import Any

from django.core.management.base import BaseCommand
from typing_extensions import override

from backstay.django import app_name


class DjangoWorkerCommand(BaseCommand):  # type: ignore[misc]  # Django has no types
    help = "Runs the items of your Backstay application until it is stopped."

    @override
    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--concurrency", type=int, help="Concurrent items.")
        parser.add_argument("--metrics-port", type=int, help="Serve metrics for Prometheus on this port.")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        from backstay.cli.main import cli

        names = {"concurrency": "--concurrency", "metrics_port": "--metrics-port"}
        given = [f"{flag}={options[name]}" for name, flag in names.items() if options[name] is not None]
        cli.main(["worker", f"--app={app_name()}", *given], prog_name="backstay")


Command = DjangoWorkerCommand  # the name that Django looks for
