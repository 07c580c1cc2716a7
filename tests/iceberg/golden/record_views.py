"""Writes java-views.json: the view metadata that Java's library makes of the scenarios, or why it refuses.

Run as `python record_views.py CLASSPATH`, which holds the jars of iceberg-spark-runtime and of PySpark (for Jackson).
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from view_scenarios import REFUSED, SCENARIOS

HERE = Path(__file__).parent

if __name__ == "__main__":
    chained = {name: {"from": start, "updates": updates} for name, (start, updates) in (SCENARIOS | REFUSED).items()}
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "asked.json"), Path(folder, "answered.json")
        asked.write_text(json.dumps(chained))
        subprocess.run(["java", "-cp", sys.argv[1], HERE / "RecordViews.java", asked, answered], check=True)
        results = json.loads(answered.read_text())
    lines = (f"{json.dumps(name)}: {json.dumps(chained[name] | {'result': results[name]})}" for name in chained)
    Path(HERE, "java-views.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
