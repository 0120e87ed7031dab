"""Celery's workers execute items: `CeleryBridge(celery_app, backstay_app)`. Celery's broker carries hints, the database
decides."""

from importlib.util import find_spec

from backstay.core.errors import UsageError

if find_spec("celery") is None:
    raise UsageError("Celery is not installed: pip install 'backstay[celery]'")

from backstay.celery.bridge import CeleryBridge

__all__ = ["CeleryBridge"]
