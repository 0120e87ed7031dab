"""The pairs that a client may attach to what it makes."""

from typing import Any

from backstay.practice.refusals import Refused, wrong_type

PAIRS_MAX, KEY_CHARACTERS_MAX, VALUE_CHARACTERS_MAX = 16, 64, 512


def check_metadata(metadata: Any) -> dict[str, str] | None:
    """At most sixteen pairs of short texts, as OpenAI wants them."""
    if metadata is None:
        return None
    if not isinstance(metadata, dict):
        raise wrong_type("metadata", "an object")
    if len(metadata) > PAIRS_MAX:
        raise Refused(400, f"'metadata' has more than {PAIRS_MAX} pairs.", "object_above_max_properties", "metadata")
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise wrong_type(f"metadata.{key}", "a string")
        if len(key) > KEY_CHARACTERS_MAX or len(value) > VALUE_CHARACTERS_MAX:
            raise Refused(400, f"'metadata.{key}' is too long.", "string_above_max_length", f"metadata.{key}")
    return metadata
