"""What the API shows of a job and of an item is what the store reads of them."""

from dataclasses import fields

from backstay.server.shapes import ItemShape, JobShape
from backstay.store.item_views import ItemView
from backstay.store.job_views import JobView

NOT_SHOWN = {"owner"}  # whoever asks is the owner
# Fields of an item that are shown under another name, or by what is made of them.
SHOWN_OTHERWISE = {"attempt_count": "attempts", "archive_id": "archive", "first_attempt_at": "started_at"}
FOR_UPDATES = {"fence", "attempt_ended_at"}  # the version of the row; it also says when the item changed
MADE_OF_THE_ID = {"job", "position"}


def test_the_api_shows_every_field_of_a_job() -> None:
    assert {field.name for field in fields(JobView)} - NOT_SHOWN == set(JobShape.model_fields) - {"done"}


def test_the_api_shows_every_field_of_an_item() -> None:
    read = {SHOWN_OTHERWISE.get(name, name) for name in ItemView._fields} - NOT_SHOWN - FOR_UPDATES
    shown = set(ItemShape.model_fields) - MADE_OF_THE_ID
    assert read == shown - {"updated_at", "retry_after"}
