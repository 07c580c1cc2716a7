"""PURE. What a run did to tables and views: one output for each, with all that the run's changes did to it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from openlineage.client.facet_v2 import lifecycle_state_change_dataset, output_statistics_output_dataset

from duckicelake.lineage.facets import DATA, as_json, dataset_facets, own, symlinks
from duckicelake.lineage.naming import Lake
from duckicelake.lineage.told import Json, Told

CHANGE: Final = "duckicelake_change"
_LIFECYCLES: Final[Mapping[str, str]] = {
    "create-table": "CREATE",
    "create-view": "CREATE",
    "drop-table": "DROP",
    "drop-view": "DROP",
    "rename-table": "RENAME",
    "rename-view": "RENAME",
    "alter-table": "ALTER",
    "alter-view": "ALTER",
    "update-table": "ALTER",
}
_COUNTED: Final[Mapping[str, str]] = {
    "added-records": "addedRecords",
    "deleted-records": "deletedRecords",
    "added-data-files": "addedDataFiles",
    "deleted-data-files": "deletedDataFiles",
    "added-files-size": "addedFilesSize",
}
"""Counts by Iceberg's names, and what our facet calls them."""
_STATISTICS: Final = as_json(output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet())
_IN_STATISTICS: Final = {"added-records": "rowCount", "added-files-size": "size", "added-data-files": "fileCount"}
_BY_WEIGHT: Final = ("DROP", "CREATE", "RENAME", "TRUNCATE", "OVERWRITE", "ALTER")
"""Of several things done to one dataset, that is told which changes most."""


def outputs_of(tolds: Sequence[Told], lake: Lake) -> list[Json]:
    """The datasets of a run's changes, in their order; namespaces are none."""
    return [_output(each, lake) for each in _by_object(tolds)]


def announced(outputs: Sequence[Json]) -> list[Json]:
    """The same by name alone, as a run's beginning tells them."""
    kept = ("symlinks", "duckicelake_table")
    return [
        {
            "namespace": each["namespace"],
            "name": each["name"],
            "facets": {key: facet for key, facet in each["facets"].items() if key in kept},
        }
        for each in outputs
    ]


def with_counts(output: Json, counts: Mapping[str, int]) -> Json:
    """The output with others' counts, by Iceberg's names, such as those of all batches of a stream so far."""
    said = dict(output["outputFacets"])
    said[CHANGE] = {**said[CHANGE], **_camel(counts)}
    return {**output, "outputFacets": {**said, "outputStatistics": _statistics(counts)}}


def counts_of(tolds: Sequence[Told]) -> dict[str, int]:
    """Rows, files and bytes that the changes added and took away, as far as that is known."""
    counts: dict[str, int] = {}
    for told in tolds:
        metrics = told.facts.get("metrics") or {}
        for key in _COUNTED:
            if metrics.get(key) is not None:
                counts[key] = counts.get(key, 0) + int(metrics[key])
    return counts


def _by_object(tolds: Sequence[Told]) -> list[list[Told]]:
    found: dict[object, list[Told]] = {}
    for told in tolds:
        if told.change.name is not None:
            key = told.change.resource if told.change.object_id is None else told.change.object_id
            found.setdefault(key, []).append(told)
    return list(found.values())


def _output(tolds: Sequence[Told], lake: Lake) -> Json:
    last = tolds[-1]
    name = last.dataset(lake)
    facets = symlinks(last, lake) | dataset_facets(last, lake, name)
    lifecycle = _lifecycle(tolds, lake)
    if lifecycle is not None:
        facets["lifecycleStateChange"] = lifecycle
    counts = counts_of(tolds)
    kinds = list(dict.fromkeys(kind for told in tolds for kind in _kinds(told)))
    position = f"{last.change.snapshot_id}.{last.change.ordinal}"
    said = {CHANGE: own(lake, CHANGE, kinds=kinds, position=position, **_camel(counts))}
    if DATA.intersection(kinds):
        said["outputStatistics"] = _statistics(counts)
    return {"namespace": name.namespace, "name": name.name, "facets": facets, "outputFacets": said}


def _kinds(told: Told) -> list[str]:
    return [str(kind) for kind in told.facts.get("kinds") or (told.change.kind,)]


def _statistics(counts: Mapping[str, int]) -> Json:
    return {**_STATISTICS, **{name: counts[key] for key, name in _IN_STATISTICS.items() if key in counts}}


def _lifecycle(tolds: Sequence[Told], lake: Lake) -> Json | None:
    done = {state: told for told in tolds for kind in _kinds(told) if (state := _state(kind, told)) is not None}
    state = next((each for each in _BY_WEIGHT if each in done), None)
    if state is None:
        return None
    previous = done[state].change.previous if state == "RENAME" else None
    identifier = None
    if previous is not None:
        former = lake.named(previous)
        identifier = lifecycle_state_change_dataset.PreviousIdentifier(name=former.name, namespace=former.namespace)
    change = lifecycle_state_change_dataset.LifecycleStateChange(state)
    return as_json(lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(change, identifier))


def _state(kind: str, told: Told) -> str | None:
    """The state that a change brings about. A table is overwritten if all of its rows were written anew."""
    if kind in {"delete", "overwrite"}:
        metrics = told.facts.get("metrics") or {}
        total, added = _number(metrics, "total-records"), _number(metrics, "added-records") or 0
        if not _number(metrics, "deleted-records"):
            return None
        if total == 0:
            return "TRUNCATE"
        is_whole = kind == "overwrite" and total == added
        return "OVERWRITE" if is_whole or told.summary.get("replace-partitions") == "true" else None
    return _LIFECYCLES.get(kind)


def _number(metrics: Mapping[str, Any], key: str) -> int | None:
    return None if metrics.get(key) is None else int(metrics[key])


def _camel(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by the names that facets have."""
    return {_COUNTED[key]: value for key, value in counts.items()}
