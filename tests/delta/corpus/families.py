"""All tables of the corpus: importing this registers them."""

from tests.delta.corpus import column_mapping, columns, logs, partitions, rewrites, rust, value_types, vectors
from tests.delta.corpus.registry import CASES

FAMILIES = (value_types, partitions, column_mapping, columns, vectors, rewrites, logs, rust)
NAMES = sorted(CASES)
