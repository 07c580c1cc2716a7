"""Settings of a Spark session, secrets among them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REDACTION: Final = "spark.redaction.regex"
SECRETS: Final = "(?i)secret|password|token|a(ccess|pi)[.-]?key|credential|authorization"
"""Spark's own pattern, and what Iceberg's catalogs are given."""


def hide_secrets(spark: SparkSession) -> None:
    """Keep secrets of the sessions to come out of Spark's pages, unless somebody has said what it is to hide."""
    _live_conf(spark).setIfMissing(REDACTION, SECRETS)


def configure(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Set them in the session alone, and keep secrets among them out of Spark's event log.

    A session's settings are written there with each job; hidden are those that the SparkConf, too, has a value for.
    """
    for name, value in settings.items():
        if re.search(SECRETS, name):
            _live_conf(spark).setIfMissing(name, "")
        spark.conf.set(name, value)


def _live_conf(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.sc().conf()  # noqa: SLF001
