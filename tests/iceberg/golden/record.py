"""Writes java-v1.json, java-v2.json and java-v3.json: the metadata that Java's library makes of the scenarios.

Run as `python record.py CLASSPATH`, which holds the jars of iceberg-spark-runtime and of PySpark (for Jackson).
Each scenario is one line: what it starts from, its updates and Java's result.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from scenarios import scenarios

HERE = Path(__file__).parent


def record(version: int, class_path: str) -> None:
    chained = {
        name: {"from": start, "version": version, "updates": updates}
        for name, (start, updates) in scenarios(version).items()
    }
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "asked.json"), Path(folder, "answered.json")
        asked.write_text(json.dumps(chained))
        subprocess.run(["java", "-cp", class_path, HERE / "Record.java", asked, answered], check=True)
        results = json.loads(answered.read_text())
    lines = (f"{json.dumps(name)}: {json.dumps(chained[name] | {'result': results[name]})}" for name in chained)
    Path(HERE, f"java-v{version}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    for each in (1, 2, 3):
        record(each, sys.argv[1])
