"""The attacks: spoilt requests, spoilt files, and whatever the API's description allows."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import orjson
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings

from duckicelake.iceberg.manifest.entry import DataFile, FileContent, ManifestContent
from duckicelake.iceberg.puffin import write_deletion_vectors
from scripts.attack_job.lake import NAMESPACE, TABLES, NotThereError, Request, metadata, new_victim, requests
from scripts.attack_job.mutations import VALUES, spoilt_avro, spoilt_bytes, spoilt_json
from scripts.attack_job.target import Target
from tests.support.client import Draft, data_files, local

Until = Callable[[], bool]
_SPOILT_A_TIME = 4
_ROUNDS_OF_A_VICTIM = 12
_ALL = list(HealthCheck)
_OURS = frozenset({"authorization", "host", "content-length"})
_HEADERS = (
    "Idempotency-Key", "X-Iceberg-Access-Delegation", "If-None-Match", "Content-Type", "Accept-Encoding", "Cookie",
    "Content-Encoding", "X-Forwarded-For", "X-Request-Id",
)  # fmt: skip
_WILD_FILES: tuple[dict[str, Any], ...] = (
    {"record_count": 0},
    {"record_count": 2**62},
    {"file_size_in_bytes": 2**62},
    {"lower_bounds": {1: b"", 2: b"\xff" * 9, 2**31 - 1: b"x"}},
    {"value_counts": {1: -5, -1: 2**62}},
    {"partition": ()},
    {"sort_order_id": 2**31 - 1},
    {"first_row_id": 2**62},
    {"split_offsets": (2**62, -1)},
    {"key_metadata": b"\x00" * 99},
    {"file_format": "ORC"},
    {"equality_ids": (99,)},
    {"content": FileContent.EQUALITY_DELETES, "equality_ids": (1, 1, 3)},
    {"content": FileContent.POSITION_DELETES},
)
_WILD_LINES: dict[str, Any] = {
    "partition_spec_id": 9,
    "sequence_number": 2**62,
    "added_rows_count": -1,
    "content": ManifestContent.DELETES,
    "first_row_id": 2**62,
}


def spoil_requests(target: Target, random: Random, until: Until) -> None:
    """Real requests with something wrong in them."""
    target.campaign = "requests"
    for name in _victims(target, random, until):
        for request in _known(target, name):
            for _ in range(_SPOILT_A_TIME):
                path = request.path if random.random() < 0.95 else _spoilt_path(request.path, random)
                body = spoilt_json(request.body, random) if random.random() < 0.95 else orjson.dumps(request.body)
                target.send(request.method, path, body, _headers(random))
            if until():
                break
        target.watch_memory()


def spoil_files(target: Target, random: Random, until: Until) -> None:
    """Real commits and registrations whose files have something wrong in them."""
    target.campaign = "files"
    attacks = (_spoil_list, _spoil_manifest, _spoil_delete_file, _spoil_vector, _spoil_metadata, _spoil_entry)
    for name in _victims(target, random, until):
        with suppress(NotThereError):
            random.choice(attacks)(target, name, random)
        target.watch_memory()


def describe(target: Target, description: dict[str, Any], number: int, examples: int) -> None:
    """What schemathesis makes of the API's description, a part of it with names of what is there."""
    target.campaign = "description"
    victim = new_victim(target, 2)
    schema = schemathesis.openapi.from_dict(description)
    operations: Iterator[Any] = schema.get_all_operations()
    for operation in operations:
        _describe_one(target, operation.ok(), victim, number, examples)
        target.watch_memory()
        if not target.is_fine():
            return


def _describe_one(target: Target, operation: Any, victim: str, number: int, examples: int) -> None:
    random = Random(number)
    real = {"prefix": "", "namespace": "attacked", "table": victim, "view": "view"}

    @seed(number)
    @settings(max_examples=examples, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=_ALL)
    @given(case=operation.as_strategy())
    def send(case: Any) -> None:
        names = real if random.random() < 0.7 else {}
        path = operation.path
        for key, value in (case.path_parameters or {}).items():
            path = path.replace(f"{{{key}}}", quote(str(names.get(key, value)), safe=""))
        if operation.method.upper() == "DELETE" and random.random() < 0.9:
            path += "-not"  # what the next operations are about should stay
        sent = case.as_transport_kwargs(base_url=str(target.http.base_url))
        query = "&".join(f"{quote(str(key))}={quote(str(value))}" for key, value in (sent.get("params") or {}).items())
        headers = {key: str(value) for key, value in (sent.get("headers") or {}).items() if key.lower() not in _OURS}
        target.send(operation.method.upper(), f"{path}?{query}" if query else path, _content(sent), headers)

    send()


def _content(sent: dict[str, Any]) -> bytes | None:
    """The body of what would be sent."""
    data = sent.get("data")
    if isinstance(data, str):
        return data.encode(errors="replace")
    if isinstance(data, bytes):
        return data
    value = sent.get("json", data)
    return None if value is None else _json_or_none(value)


def _json_or_none(value: Any) -> bytes | None:
    """JSON, if orjson can write the value."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return None


def _victims(target: Target, random: Random, until: Until) -> Iterator[str]:
    """Tables to attack, each for a few rounds, while there is time and the server lives."""
    while not until() and target.is_fine():
        try:
            name = new_victim(target, random.choice((2, 2, 3)))
        except NotThereError:
            return
        for _ in range(_ROUNDS_OF_A_VICTIM):
            if until():
                return
            yield name


def _known(target: Target, name: str) -> Iterator[Request]:
    with suppress(NotThereError):
        yield from requests(target, name)


def _spoilt_path(path: str, random: Random) -> str:
    parts = path.split("/")
    parts[random.randrange(2, len(parts))] = quote(str(random.choice(VALUES))[:3000].encode(errors="replace"), safe="")
    return "/".join(parts)


def _headers(random: Random) -> dict[str, str]:
    if random.random() < 0.9:
        return {}
    value = str(random.choice(VALUES))[:9000].encode("latin-1", errors="replace").decode("latin-1")
    return {random.choice(_HEADERS): value.replace("\x00", "")}


def _draft(target: Target, name: str, operation: str = "append") -> Draft:
    known = metadata(target, name)
    return Draft(known, operation, format_version=known["format-version"])


def _send(target: Target, name: str, body: dict[str, Any]) -> None:
    target.send("POST", f"{TABLES}/{name}", orjson.dumps(body))


def _spoil_list(target: Target, name: str, random: Random) -> None:
    draft = _draft(target, name)
    body = draft.body([draft.manifest([draft.data_file([(6, "six")])]), *draft.parent_manifests])
    listed = local(body["updates"][0]["snapshot"]["manifest-list"])
    listed.write_bytes(spoilt_avro(listed.read_bytes(), random))
    _send(target, name, body)


def _spoil_manifest(target: Target, name: str, random: Random) -> None:
    draft = _draft(target, name)
    line = draft.manifest([draft.data_file([(6, "six")]), draft.data_file([(7, "seven")])])
    data = spoilt_avro(local(line.manifest_path).read_bytes(), random)
    local(line.manifest_path).write_bytes(data)
    _send(target, name, draft.body([replace(line, manifest_length=len(data)), *draft.parent_manifests]))


def _spoil_entry(target: Target, name: str, random: Random) -> None:
    """A well-formed manifest of what can't be."""
    draft = _draft(target, name)
    file = replace(
        draft.data_file([(6, "six")]), **random.choice((*_WILD_FILES, {"file_path": str(random.choice(VALUES))}))
    )
    entry = replace(draft.added(file), sequence_number=random.choice((None, -1, 2**62)))
    changes = {key: value for key, value in _WILD_LINES.items() if random.random() < 0.1}
    try:
        body = draft.body([replace(draft.manifest([entry]), **changes), *draft.parent_manifests])
    except (ValueError, OverflowError, TypeError):
        return  # what no manifest can say
    _send(target, name, body)


def _spoil_delete_file(target: Target, name: str, random: Random) -> None:
    draft = _draft(target, name, "delete")
    paths = data_files(draft.metadata)
    file = draft.delete_file([(paths[0], 0)] if paths else [("/x", 1)])
    local(file.file_path).write_bytes(spoilt_bytes(local(file.file_path).read_bytes(), random))
    if random.random() < 0.3:
        file = replace(file, content=FileContent.EQUALITY_DELETES, equality_ids=(1,))
    _send(target, name, draft.body([draft.manifest([file]), *draft.parent_manifests]))


def _spoil_vector(target: Target, name: str, random: Random) -> None:
    draft = _draft(target, name, "delete")
    paths = data_files(draft.metadata) or ["/x"]
    puffin = write_deletion_vectors([(paths[0], {0})])
    (blob,) = puffin.blobs
    path = draft.new_file("dv.puffin", spoilt_bytes(puffin.data, random))
    offset, size = (blob.offset, blob.length) if random.random() < 0.8 else (2**40, -1)
    vector = DataFile(FileContent.POSITION_DELETES, path, "PUFFIN", (), 1, len(puffin.data))
    vector = replace(vector, referenced_data_file=paths[0], content_offset=offset, content_size_in_bytes=size)
    _send(target, name, draft.body([draft.manifest([vector]), *draft.parent_manifests]))


def _spoil_metadata(target: Target, name: str, random: Random) -> None:
    answer = target.send("GET", f"{TABLES}/{name}")
    if answer is None or answer.status_code != 200:
        raise NotThereError(name)
    document = answer.json()["metadata"]
    folder = local(document["location"]) / "metadata"
    spoilt = folder / f"{uuid4()}.metadata.json"
    spoilt.write_bytes(spoilt_json({**document, "table-uuid": str(uuid4())}, random))
    registered = f"registered{uuid4().hex}"
    body = {"name": registered, "metadata-location": f"file://{spoilt}"}
    if random.random() < 0.5:
        target.send("POST", f"{NAMESPACE}/register", orjson.dumps(body))
    else:
        target.send("POST", f"{NAMESPACE}/register-view", orjson.dumps(body))
    target.send("DELETE", f"{TABLES}/{registered}")


def for_seconds(seconds: float) -> Until:
    """Whether the time is over."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end
