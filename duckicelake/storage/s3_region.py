"""Where a bucket is taken to be if nobody says it."""

from typing import Final

DEFAULT_REGION: Final = "us-east-1"
