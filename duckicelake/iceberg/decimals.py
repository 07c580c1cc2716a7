"""Decimals as integers: the unscaled value, its bytes, and back."""

from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Final

from duckicelake.errors import InvalidRequest

MAX_BYTES: Final = 16
"""Two's complement of the largest precision, 38, fits."""
_EXACT: Final = Context(prec=100, traps=[Inexact, InvalidOperation])


def unscaled(value: Decimal, precision: int, scale: int) -> int:
    """The decimal times ten to its scale. Raises InvalidRequest if it fits neither scale nor precision."""
    misfit = f"{value} doesn't fit decimal({precision}, {scale})"
    if not value.is_finite() or (value and not -scale <= value.adjusted() < precision - scale):
        raise InvalidRequest(misfit)
    try:
        shifted = value.scaleb(scale, _EXACT)
    except Inexact as error:
        raise InvalidRequest(misfit) from error
    if shifted != int(shifted):
        raise InvalidRequest(misfit)
    return int(shifted)


def scaled(number: int, scale: int) -> Decimal:
    """The decimal whose unscaled value is number."""
    return Decimal(number).scaleb(-scale, _EXACT)


def minimal_bytes(number: int) -> bytes:
    """Two's complement, big endian, in as few bytes as hold it."""
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def fixed_size(precision: int) -> int:
    """The bytes that every unscaled value of this precision fits (spec Appendix A: minimum number of bytes)."""
    return len(minimal_bytes(10**precision - 1))
