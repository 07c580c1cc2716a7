"""Describe tasks, jobs and what is planned, as rows of the commands' tables."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from duckicelake.maintenance.plan import format_size
from duckicelake.maintenance.task import format_counts
from duckicelake.rest.names import format_name

_COSTS: Final = ("files", "bytes", "files saved", "scans", "plans")
PLAN_HEADINGS: Final = ("task", "table", *_COSTS, "by itself", "due", "for", "why")


def describe_task(task: Mapping[str, Any]) -> tuple[str, ...]:
    """Describe a task of the queue."""
    until = ""
    if task["state"] == "waiting":
        until = _format_time(task["available"])
    message = task["message"] or format_counts(task["counts"])
    return task["kind"], _name(task), task["state"], str(task["attempts"]), until, task["why"], message


def describe_planned(job: Mapping[str, Any]) -> tuple[str, ...]:
    """Describe what is planned. What features look for reads no files of the table, and may have an empty source."""
    if job["source"] is not None:
        behind = "" if job["behind-seconds"] is None else f"{job['behind-seconds']:,.0f} s"
        why = f"{job['why']} ({job['source']})" if job["source"] else job["why"]
        return job["kind"], _name(job), *[""] * len(_COSTS), "yes", _describe_time(job), behind, why
    estimate = job["estimate"]
    read, size = f"{estimate['files-read']:,}", format_size(estimate["bytes-read"])
    by_itself = "yes" if job["is-automatic"] else "no" if job["is-chosen"] else f"no; by --only {job['kind']}"
    scans, plans = (f"{estimate[name]:.1f} times" for name in ("scan-speedup", "planning-speedup"))
    gains = f"{estimate['files-saved']:,}", scans, plans
    return job["kind"], _name(job), read, size, *gains, by_itself, "now", "", job["why"]


def _describe_time(job: Mapping[str, Any]) -> str:
    """Say when a job is due; nothing of one that waits for a change."""
    if job["next"] is not None and datetime.fromisoformat(job["next"]) > datetime.now(UTC):
        return _format_time(job["next"])
    return "now" if job["is-due"] or job["next"] is not None else ""


def describe_job(job: Mapping[str, Any]) -> tuple[str, ...]:
    """Describe a job of the history."""
    began = datetime.fromisoformat(job["started"])
    ended = datetime.fromisoformat(job["ended"]) if job["ended"] else None
    took = f"{(ended - began).total_seconds():.1f} s" if ended else ""
    counts = format_counts(job["counts"])
    who = f"{job['principal']} ({job['engine']})"
    return f"{began:%Y-%m-%d %H:%M:%S}", took, job["kind"], _name(job), job["result"], who, counts, job["message"] or ""


def _format_time(text: str) -> str:
    return f"{datetime.fromisoformat(text).astimezone():%Y-%m-%d %H:%M:%S}"


def _name(item: Mapping[str, Any]) -> str:
    return format_name(tuple(item["namespace"]), item["table"])
