"""PURE. What must hold of the manifests that a client uploaded, before anything is computed from them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.manifest import DataFile, Manifest, ManifestFile
from duckicelake.iceberg.partition import PartitionSpec


def check_manifests(
    listed: Sequence[ManifestFile], read: Mapping[str, Manifest], specs: Mapping[int, PartitionSpec]
) -> None:
    """InvalidRequest unless each manifest is listed once and is what the list says; `read` are the new ones by path."""
    check_once((line.manifest_path for line in listed), "manifest")
    for line in listed:
        if line.manifest_path in read:
            _check_manifest(line, read[line.manifest_path], specs.get(line.partition_spec_id))


def check_added(files: Iterable[DataFile]) -> None:
    """InvalidRequest if a snapshot adds a file twice."""
    check_once((file.file_path for file in files), "file")


def check_once(paths: Iterable[str], what: str) -> None:
    """InvalidRequest naming the first path that occurs more than once."""
    for path, times in Counter(paths).items():
        if times > 1:
            raise InvalidRequest(f"The {what} {path} is listed {times} times: list it once")


def _check_manifest(line: ManifestFile, manifest: Manifest, spec: PartitionSpec | None) -> None:
    if spec is None:
        raise InvalidRequest(
            f"{line.manifest_path} is of partition spec {line.partition_spec_id}, which the table doesn't have"
        )
    if manifest.spec_id != line.partition_spec_id:
        raise InvalidRequest(
            f"{line.manifest_path} is of partition spec {manifest.spec_id}, "
            f"but its manifest list says {line.partition_spec_id}"
        )
    if manifest.content != line.content:
        raise InvalidRequest(
            f"{line.manifest_path} holds {manifest.content.name.lower()}, "
            f"but its manifest list says {line.content.name.lower()}"
        )
    fields = tuple(field.field_id for field in spec.fields)
    if manifest.partition_fields != fields:
        raise InvalidRequest(
            f"{line.manifest_path} has the partition fields {list(manifest.partition_fields)}, "
            f"but partition spec {spec.spec_id} has {list(fields)}"
        )
