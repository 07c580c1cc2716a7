"""All commands of the pipeline, on the sub-app."""

from typing import Final

from duckicelake.cli.pipeline import app as sub_app
from duckicelake.cli.pipeline import bench, changes, ingest, maintain, verify

COMMAND_MODULES: Final = (bench, changes, ingest, maintain, verify)
"""Modules whose import adds commands to the sub-app."""
app = sub_app.app
