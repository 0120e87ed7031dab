"""Backstay inside Django: one `SyncBackstay` for the process, and the command `manage.py backstay_worker`.

Put "backstay.django" into INSTALLED_APPS, and name your application: BACKSTAY_APP = "shop.work:backstay".
"""

import atexit
import threading
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backstay.app import Backstay
    from backstay.sync import SyncBackstay

_lock = threading.Lock()
_shared: "SyncBackstay | None" = None


def app_name() -> str:
    """The setting BACKSTAY_APP: MODULE:NAME."""
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured

    name = getattr(settings, "BACKSTAY_APP", None)
    if not isinstance(name, str) or ":" not in name:
        raise ImproperlyConfigured('Set BACKSTAY_APP to MODULE:NAME of your application, e.g. "shop.work:backstay".')
    return name


def configured_app() -> "Backstay":
    """The application that the settings name."""
    module, _, name = app_name().partition(":")
    app: Backstay = getattr(import_module(module), name)
    return app


def shared_backstay() -> "SyncBackstay":
    """The application for all threads of this process. Opened at the first use, so that a
    server that forks its processes has one in each."""
    global _shared
    with _lock:
        if _shared is None:
            from backstay.sync import SyncBackstay

            made = SyncBackstay(configured_app())
            made.run(made.app.open())
            _shared = made
            atexit.register(_shared.close)
        return _shared
