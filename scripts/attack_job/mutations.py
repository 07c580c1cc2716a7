"""Spoils JSON documents and files, one random choice after the other: the same generator spoils them the same way."""

import copy
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final

import orjson

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.avro import encode_bytes, encode_long
from duckicelake.iceberg.avro_decoder import read_container

Json = Any
_DEEP: Final = "<deep>"
"""Stands for what json can't write: lists within lists."""
VALUES: Final[Sequence[Json]] = (
    None, True, False, 0, -1, 1, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**400,
    0.5, -0.0, 1e308, float("nan"), float("inf"), [], {}, [[]], [None], {"": None}, "", " ", "0", "-1", "null", "main",
    "x" * 300, "ä" * 5000, "\u202e", "\ud800", "\x00", "\x7f", "\U0001f986", "..", "../..", "%2e%2e%2f", "a.b", "\x1f",
    "'; DROP TABLE ducklake_table; --", "$1 %s %(x)s {0} \\", "/etc/passwd", "file:///etc/passwd", "s3://b/../x",
    "http://169.254.169.254/", "decimal(39,2)", "decimal(38,-1)", "fixed[0]", "fixed[99999999999]", "list<int>",
    "bucket[0]", "bucket[2147483648]", "truncate[-1]", "void", "struct", "00000000-0000-0000-0000-000000000000",
    "9" * 400, {"type": "list", "element-id": 2**31, "element": "int", "element-required": "yes"}, _DEEP,
)  # fmt: skip
ACTIONS: Final = (
    "assign-uuid", "upgrade-format-version", "add-schema", "set-current-schema", "add-spec", "set-default-spec",
    "add-sort-order", "set-default-sort-order", "add-snapshot", "set-snapshot-ref", "remove-snapshots",
    "remove-snapshot-ref", "set-location", "set-properties", "remove-properties", "set-statistics", "remove-statistics",
    "remove-partition-specs", "remove-schemas", "add-encryption-key", "add-view-version", "set-current-view-version",
)  # fmt: skip


def spoilt_json(document: Json, random: Random) -> bytes:
    """The document with one to three things wrong with it; most results are JSON still."""
    spoilt = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        spoilt = _spoil_node(spoilt, random)
    text = json.dumps(spoilt)
    if _DEEP in text:
        depth = random.choice((60, 190, 600, 30_000))
        text = text.replace(json.dumps(_DEEP), "[" * depth + "]" * depth)
    if random.random() < 0.05:
        text = _twice_a_key(text, random)
    data = text.encode()
    return spoilt_bytes(data, random) if random.random() < 0.05 else data


def _spoil_node(document: Json, random: Random) -> Json:
    places = list(_places(document))
    if not places:
        return random.choice(VALUES)
    holder, key = random.choice(places)
    match random.randrange(8):
        case 0:
            del holder[key]
        case 1:
            other, name = random.choice(places)
            holder[key] = copy.deepcopy(other[name]) if other is not holder or isinstance(holder, dict) else None
        case 2 if isinstance(holder, dict):
            holder[random.choice(("extra", "type", "action", "ref", "fields", "snapshot-id", ""))] = random.choice(
                VALUES
            )
        case 2:
            holder.append(copy.deepcopy(holder[key]))
        case 3 if isinstance(holder[key], int):
            holder[key] += random.choice((1, -1, 1000, -holder[key] * 2))
        case 4 if key == "action":
            holder[key] = random.choice(ACTIONS)
        case 4 if isinstance(holder, list):
            holder.extend(copy.deepcopy(holder) * random.choice((1, 30)))
        case _:
            holder[key] = random.choice(VALUES)
    return document


def _places(document: Json) -> Iterator[tuple[Any, Any]]:
    """(dict or list, key or index) of everything in the document."""
    stack = [document]
    while stack:
        node = stack.pop()
        items: list[tuple[Any, Any]] = []
        if isinstance(node, dict):
            items = list(node.items())
        elif isinstance(node, list):
            items = list(enumerate(node))
        for key, value in items:
            yield node, key
            stack.append(value)


def _twice_a_key(text: str, random: Random) -> str:
    at = text.find('"', random.randrange(len(text) or 1))
    return text if at < 0 else f'{text[:at]}"updates": [], "name": 1, {text[at:]}'


def spoilt_bytes(data: bytes, random: Random) -> bytes:
    """The bytes with bits flipped, cut, repeated, overwritten by huge numbers, or with a part from elsewhere."""
    if not data:
        return b"\x00"
    spoilt, at = bytearray(data), random.randrange(len(data))
    match random.randrange(7):
        case 0:
            for _ in range(random.choice((1, 2, 8))):
                spoilt[random.randrange(len(spoilt))] ^= 1 << random.randrange(8)
        case 1:
            del spoilt[at:]
        case 2:
            del spoilt[at : at + random.randrange(1, 40)]
        case 3:
            spoilt[at:at] = spoilt[at : at + 64] * random.choice((1, 100))
        case 4:
            bombs = (
                b"\xff" * 4,
                b"\xff" * 9 + b"\x01",
                b"\xfe\xff\xff\xff\x0f",
                b"\x80\x80\x80\x80\x80\x20",
                b"\x7f\xff",
            )
            bomb = random.choice(bombs)
            spoilt[at : at + len(bomb)] = bomb
        case 5:
            start = random.randrange(len(data))
            spoilt[at : at + 32] = data[start : start + 32]
        case _:
            spoilt[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
    return bytes(spoilt)


def spoilt_avro(data: bytes, random: Random) -> bytes:
    """A container that is spoilt inside, where its packing doesn't give it away; or outside, or a bomb."""
    try:
        opened = read_container(data)
    except InvalidRequestError:
        return spoilt_bytes(data, random)
    header = {key: value for key, value in opened.metadata.items() if key != "avro.codec"}
    schema, blocks = orjson.dumps(opened.schema), list(opened.blocks())
    match random.randrange(8):
        case 0:
            return spoilt_bytes(data, random)
        case 1:
            schema = spoilt_json(opened.schema, random)
        case 2:
            key = random.choice(sorted(header) or ["x"])
            header[key] = str(random.choice(VALUES))[:10_000].encode(errors="replace").decode()
        case 3:
            blocks = [(random.choice((0, -1, 1 << 40, count + 1, 2**62)), block) for count, block in blocks]
        case 4:
            filler = random.choice((b"\x00", b"\x02", blocks[0][1] if blocks else b"\x04"))
            blocks = [(random.choice((1, 1 << 20)), filler * (random.choice((64 << 20, 7 << 20)) // len(filler)))]
        case _:
            blocks = [(count, spoilt_bytes(block, random)) for count, block in blocks]
    return container(schema, header, blocks, random.choice(("null", "deflate", "deflate", "zstandard", "snappy")))


def container(schema: bytes, header: dict[str, str], blocks: Sequence[tuple[int, bytes]], codec: str) -> bytes:
    """A container whose packing is right, if its codec is null or deflate."""
    packs: dict[str, Callable[[bytes], bytes]] = {"deflate": lambda block: zlib.compress(block, wbits=-15)}
    values = {"avro.schema": schema, "avro.codec": codec.encode()}
    values |= {key: value.encode(errors="replace") for key, value in header.items() if key not in values}
    pairs = [encode_bytes(key.encode()) + encode_bytes(value) for key, value in values.items()]
    sync = b"synchronisation!"
    parts = [b"Obj\x01", encode_long(len(pairs)), *pairs, b"\x00", sync]
    for count, block in blocks:
        parts += [encode_long(count), encode_bytes(packs.get(codec, bytes)(block)), sync]
    return b"".join(parts)
