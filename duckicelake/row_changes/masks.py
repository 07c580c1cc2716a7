"""PURE. Mask what an answer shows: hashes with a salt come last, every other mask first.

Rows are compared, paired and chosen by values that are the same in each answer. So a reader that goes on in the middle
of a snapshot finds the same rows in the same order, whichever server answers. A salted hash isn't such a value: it
takes the place of the true one when a row is written. That shows no more than the hash does: two values are the same
where their hashes are. Every other mask may hide that two values differ, so only what it leaves is compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.expressions import Predicate, collect_tests
from duckicelake.iceberg.read_restrictions import Mask, Restriction
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import NestedField
from duckicelake.lake.ducklake.database import quote_literal
from duckicelake.query.restricted import cast_to_column, write_masked_value

_NULL_TESTS: Final = frozenset({"is-null", "not-null"})


def leave_out_hashes(restriction: Restriction, schema: Schema) -> Restriction:
    """Return a restriction as it fits a schema, without the hashes that `write_hashes` writes."""
    found = restriction.fit(schema)
    return replace(found, masks={id_: mask for id_, mask in found.masks.items() if mask is not Mask.SHA_256_LOCAL})


def write_defaults(
    fields: Sequence[NestedField], defaults: Mapping[int, str], restriction: Restriction | None, salt: bytes
) -> dict[int, str]:
    """Write the values of rows that are older than their columns, by field id; policies mask them as others.

    defaults: the text of each. restriction: as it fits the fields, without hashes.
    """
    texts = {id_: quote_literal(text) for id_, text in defaults.items()}
    masks = {} if restriction is None else restriction.masks
    masked = (
        (field.id, write_masked_value(cast_to_column(texts[field.id], field), field, masks, salt))
        for field in fields
        if field.id in texts
    )
    return texts | {id_: sql for id_, sql in masked if sql is not None}


def write_hashes(fields: Sequence[NestedField], restriction: Restriction | None, salt: bytes) -> dict[int, str]:
    """Write the values of an answer's columns that have salted hashes in them, by their numbers.

    Hashes are of the type that a column has in the answer, so they are alike where older rows have a narrower one.
    """
    if restriction is None:
        return {}
    hashed = {id_ for id_, mask in restriction.masks.items() if mask is Mask.SHA_256_LOCAL}
    found = restriction.fit(Schema(fields=tuple(fields))).masks
    masks = {id_: mask for id_, mask in found.items() if id_ in hashed}
    written = ((at, write_masked_value(f"c{at}", field, masks, salt)) for at, field in enumerate(fields))
    return {at: sql for at, sql in written if sql is not None}


def check_condition(predicate: Predicate, restriction: Restriction | None, fields: Iterable[NestedField]) -> None:
    """Check that a condition compares no salted hash. Raises InvalidRequestError.

    predicate: bound to the fields.
    """
    masks = {} if restriction is None else restriction.masks
    names = {field.id: field.name for field in fields if masks.get(field.id) is Mask.SHA_256_LOCAL}
    for test in collect_tests(predicate):
        if test.column in names and test.operator not in _NULL_TESTS:
            raise InvalidRequestError(
                f"Invalid where: a policy has {names[int(test.column)]} hashed anew in each answer, so only "
                "IS NULL and IS NOT NULL can ask for it"
            )
