"""Numbers of things as people write them."""


def counted(number: int, what: str) -> str:
    """As 1 file, 0 files, 1,200 files."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
