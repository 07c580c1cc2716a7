"""An answer whose next batch has no memory ends before it, on the border of a message."""

import json
import subprocess
import sys

import pyarrow as pa
import pytest

_WRITER = """
import resource, sys
import pyarrow as pa
from duckicelake.row_changes.worker import EndedArrowWriter

whole = int(sys.argv[1])
schema = pa.schema({"id": pa.int64(), "text": pa.binary()})
small = pa.record_batch([[1, 2], [b"a", b"b"]], schema=schema)
large = pa.record_batch([[3], [bytes(200_000_000)]], schema=schema)
writer = EndedArrowWriter(schema)
pieces = [writer.write(small) for _ in range(whole)]
used = 4096 * int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (used + 100_000_000,) * 2)
try:
    writer.write(large)
except MemoryError:
    pieces.append(writer.end_at("5.2.0", is_complete=False))
sys.stdout.buffer.write(b"".join(pieces))
"""


@pytest.mark.parametrize("whole", [0, 1, 3])
def test_a_batch_that_fails_in_its_middle_leaves_nothing_of_its_message(whole: int) -> None:
    """Its small column has been written when there is no memory for the large one."""
    run = subprocess.run([sys.executable, "-c", _WRITER, str(whole)], check=True, capture_output=True, timeout=120)
    with pa.ipc.open_stream(run.stdout) as stream:
        *batches, end = stream.iter_batches_with_custom_metadata()
    assert [batch.batch.to_pydict() for batch in batches] == [{"id": [1, 2], "text": [b"a", b"b"]}] * whole
    assert (end.batch.num_rows, json.loads(end.custom_metadata[b"is-complete"])) == (0, False)
    assert end.custom_metadata[b"position"] == b"5.2.0"
