"""What the API shows of a job is what the store reads of it."""

from dataclasses import fields

from backstay.server.shapes import JobShape
from backstay.store.job_views import JobView

NOT_SHOWN = {"owner"}  # whoever asks is the owner


def test_the_api_shows_every_field_of_a_job() -> None:
    assert {field.name for field in fields(JobView)} - NOT_SHOWN == set(JobShape.model_fields) - {"done"}
