"""Django's commands: `python manage.py runserver`, `python manage.py backstay_worker`."""

import sys

import shop  # type: ignore[import-not-found]  # noqa: F401 - it is beside this file, and sets Django up
from django.core.management import execute_from_command_line

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
