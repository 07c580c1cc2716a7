"""All tables of the corpus: importing this registers them."""

from tests.delta.corpus import columns, logs, mapped, partitioned, rewrites, rust, value_types, vectors
from tests.delta.corpus.registry import CASES

FAMILIES = (value_types, partitioned, mapped, columns, vectors, rewrites, logs, rust)
NAMES = sorted(CASES)
