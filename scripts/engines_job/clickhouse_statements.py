"""Runs SQL by chDB: each line is a statement as JSON, and so is each answer, its rows or why it failed.

It is a program of its own, for a Python that has chDB on its path; its argument is the folder for ClickHouse's data.
"""

import json
import sys

from chdb.session import Session

session = Session(sys.argv[1])
for line in sys.stdin:
    try:
        text = str(session.query(json.loads(line), "JSONCompactEachRow"))
        print(json.dumps({"rows": [json.loads(row) for row in text.splitlines()]}), flush=True)
    except RuntimeError as error:
        print(json.dumps({"error": str(error)}), flush=True)
