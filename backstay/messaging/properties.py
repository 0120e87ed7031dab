"""Reads the properties of messages leniently, from any sender.

For a message that it cannot read the driver ends the connection, and the broker then delivers it to the next one: a
time in nanoseconds, or a name that is not UTF-8, would keep all workers from all of their messages.
"""

import struct
from typing import Final

from pamqp.base import BasicProperties
from pamqp.commands import Basic

UNREAD_HEADER: Final = "x-backstay-was-properties"  # flags and properties as they came


def read_leniently() -> None:
    """From now on a message whose properties cannot be read comes without them, but for one header that holds them."""
    Basic.Properties.unmarshal = _unmarshal  # type: ignore[assignment,method-assign]


def _unmarshal(properties: Basic.Properties, flags: int, data: bytes) -> None:
    try:
        BasicProperties.unmarshal(properties, flags, data)
    except (ValueError, OverflowError, OSError, RecursionError, struct.error):
        for name in properties.attributes():
            setattr(properties, name, None)
        properties.headers = {UNREAD_HEADER: bytearray(struct.pack(">H", flags) + data)}
