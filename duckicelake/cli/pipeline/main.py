"""All commands of the pipeline, on the sub-app."""

from duckicelake.cli.pipeline import bench, changes, importing, ingest, jobs, maintaining, optimizing, verifying
from duckicelake.cli.pipeline.app import app

__all__ = ["app", "bench", "changes", "importing", "ingest", "jobs", "maintaining", "optimizing", "verifying"]
