"""PURE. Z85, the base 85 in which Delta writes UUIDs and inline deletion vectors (ZeroMQ RFC 32)."""

import base64
from typing import Final

_Z85: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_BASE85: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
"""The alphabet of Python's base85, which is the same but for its characters."""
_TO_BASE85: Final = bytes.maketrans(_Z85, _BASE85)
_TO_Z85: Final = bytes.maketrans(_BASE85, _Z85)


def encode(data: bytes) -> str:
    """The text of bytes, padded with zeros to a multiple of four of them."""
    padded = data + bytes(-len(data) % 4)
    return base64.b85encode(padded).translate(_TO_Z85).decode()


def decode(text: str) -> bytes:
    """The bytes of a text, with their padding; ValueError if it isn't one."""
    data = text.encode("ascii")
    if len(data) % 5 or data.translate(None, delete=_Z85):
        raise ValueError(f"{text!r} isn't Z85")
    return base64.b85decode(data.translate(_TO_BASE85))
