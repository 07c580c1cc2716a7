"""Runs code of Python's: each line is code as JSON, and so is each answer, the rows in `answer` or why it failed.

It is a program of its own, for a Python that has the libraries on its path. Names stay known from line to line.
"""

import json
import os
import sys
from typing import Any

out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what libraries print is no answer
names: dict[str, Any] = {}
for line in sys.stdin:
    names["answer"] = []
    try:
        exec(json.loads(line), names)
        print(json.dumps({"rows": [list(row) for row in names["answer"]]}, default=str), file=out, flush=True)
    except Exception as error:  # noqa: BLE001, any failure of the code is an answer
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=out, flush=True)
