import json
import subprocess
import sys
from pathlib import Path

from duckicelake.cli.serve.address import note_server, read_noted_uri


def test_note_shows_the_uri_while_the_server_runs(tmp_path: Path) -> None:
    assert read_noted_uri(tmp_path) is None
    with note_server(tmp_path, "http://127.0.0.1:1"):
        assert read_noted_uri(tmp_path) == "http://127.0.0.1:1"
    assert read_noted_uri(tmp_path) is None


def test_note_of_a_killed_server_does_not_count(tmp_path: Path) -> None:
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (tmp_path / ".server.json").write_text(json.dumps({"pid": int(dead.stdout), "uri": "http://127.0.0.1:1"}))
    assert read_noted_uri(tmp_path) is None


def test_broken_note_does_not_count(tmp_path: Path) -> None:
    for text in ("", "[]", "{}", '{"pid": "x", "uri": 1}'):
        (tmp_path / ".server.json").write_text(text)
        assert read_noted_uri(tmp_path) is None
