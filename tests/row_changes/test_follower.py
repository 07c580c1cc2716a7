"""Followers of changes: what ends them, what they wait out, and what their sinks have then."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from duckicelake.catalog.context.services import Services
from duckicelake.changelog.writer import write_all_changes
from duckicelake.cli.main import app
from duckicelake.client.lake import Lake
from duckicelake.errors import BadInputError, DeliveryError
from duckicelake.lake.ducklake.dropped import set_retention
from duckicelake.rest.connection import Connection
from duckicelake.row_changes import client
from duckicelake.row_changes.client import ChangesReader
from duckicelake.row_changes.kafka import KafkaSink
from duckicelake.row_changes.sinks import FollowedTable, SinkOptions, StateFile
from duckicelake.server.feed import hub
from tests.row_changes.conftest import Changes
from tests.support.cutting_proxy import CuttingProxy, serving


@dataclass
class ListingSink:
    """Lists the rows that it takes, and the places that it keeps; Ctrl-C comes when it has so many rows, or places."""

    interrupted_at: int | None = None
    ended_at: int | None = None
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    kept: list[FollowedTable] = field(default_factory=list)

    def find_place(self) -> FollowedTable:
        return FollowedTable()

    def take(self, line: bytes, row: Mapping[str, Any], place: FollowedTable) -> None:  # noqa: ARG002
        self.rows.append(row)
        if len(self.rows) == self.interrupted_at:
            raise KeyboardInterrupt

    def keep(self, place: FollowedTable) -> None:
        self.kept.append(place)
        if len(self.kept) == self.ended_at:
            raise KeyboardInterrupt


@pytest.fixture
def history(changes: Changes) -> Changes:
    for statement in (
        "CREATE TABLE t (id BIGINT, _position VARCHAR, _is_complete BOOLEAN)",
        "INSERT INTO t SELECT i, '1.0.0', true FROM range(6_000) r(i)",
        "DELETE FROM t WHERE id < 10",
    ):
        changes.duck.execute(statement).fetchall()
    return changes


def read(uri: object, sink: ListingSink) -> ChangesReader:
    reader = ChangesReader(Lake(Connection(str(uri))), "main.t", {}, sink)
    reader.read(is_following=False)
    return reader


def test_rows_of_a_table_with_the_columns_of_the_last_line_are_rows(history: Changes) -> None:
    sink = ListingSink()
    reader = read(history.http.base_url, sink)
    lines = history.ask().text.splitlines()
    assert sink.rows == [json.loads(line) for line in lines[:-1]]
    assert len(sink.rows) == 6_010
    assert reader.place.position == json.loads(lines[-1])["_position"]


class ShortAnswers(CuttingProxy):
    """Cuts each answer of changes after some rows, as a proxy does that gives an answer little time."""

    def shorten(self, request: str, content: bytes) -> bytes:
        return content[:100_000] if "/changes?" in request else content


def test_answers_that_are_cut_are_read_on_as_long_as_rows_come(
    history: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pauses of all cuts together would be longer than a catalog may be away."""
    monkeypatch.setattr(client, "_RETRY_SECONDS", 0.5)
    sink = ListingSink()
    with serving(ShortAnswers(str(history.http.base_url))) as proxy:
        read(proxy.uri, sink)
    assert sink.rows == history.read()[0]


class NoFeed(CuttingProxy):
    """Cuts each answer of the change feed while it is away."""

    is_away = True

    def shorten(self, request: str, content: bytes) -> bytes:
        return content[:1] if "/events?" in request and self.is_away else content


def test_a_change_feed_that_is_away_is_asked_in_pauses_that_grow(
    history: Changes, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changes themselves can be read each time. That doesn't begin the pauses anew."""
    monkeypatch.setattr(client, "_WAIT_SECONDS", 0.0)
    write_all_changes(services)
    sink = ListingSink(ended_at=7)
    with serving(NoFeed(str(history.http.base_url))) as proxy:
        reader = ChangesReader(Lake(Connection(proxy.uri)), "main.t", {}, sink)
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            reader.read(is_following=True)
        assert time.monotonic() - began >= sum(0.05 * 2**number for number in range(6))
        assert (len(sink.rows), reader._feed_retry.attempts) == (6_010, 6)
        proxy.is_away = False
        reader._wait()
    assert reader._feed_retry.attempts == 0


def test_a_change_feed_that_is_behind_holds_a_follower_up_for_one_answer_and_is_noted(
    history: Changes, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a worker that writes the changelog, the server says so after its timeout. The client asked five times."""
    monkeypatch.setattr(hub, "_TIMEOUT_SECONDS", 1.2)
    monkeypatch.setattr(client, "_WAIT_SECONDS", 0.0)
    notes: list[str] = []
    lake = Lake(Connection(str(history.http.base_url)))
    reader = ChangesReader(lake, "main.t", {}, ListingSink(), note=notes.append)
    reader.read(is_following=False)
    began = time.monotonic()
    reader._wait()
    assert (time.monotonic() - began < 4, notes) == (True, [])
    reader._wait()
    assert [note.partition(":")[0] for note in notes] == [
        "The change feed is away or behind, so changes come some seconds late"
    ]
    reader._wait()
    write_all_changes(services)
    reader._wait()
    assert notes[1:] == ["The change feed is there again"]


def test_a_place_before_a_row_that_the_sink_may_have_is_not_kept(history: Changes) -> None:
    """Ctrl-C comes between the two: a topic of Kafka would have the row in a transaction with the place before it."""
    sink = ListingSink(interrupted_at=7)
    with pytest.raises(KeyboardInterrupt):
        read(history.http.base_url, sink)
    assert (len(sink.rows), sink.kept) == (7, [])


def test_a_follower_waits_out_a_change_feed_that_was_pruned(
    history: Changes, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows behind its place are there all the same."""
    monkeypatch.setattr(client, "_UNKNOWN_SECONDS", 0.2)
    write_all_changes(services)
    with services.database.transaction() as cursor:
        cursor.execute("DELETE FROM duckicelake_change WHERE snapshot_id < 3")
    assert history.http.get("/v1/events", params={"from": "1"}).status_code == 410
    reader = ChangesReader(Lake(Connection(str(history.http.base_url))), "main.t", {}, ListingSink())
    reader.place = FollowedTable(position="1.0.0")
    began = time.monotonic()
    reader._wait()
    assert time.monotonic() - began >= 0.2


def test_a_file_of_state_that_cannot_be_made_is_named_before_the_first_row(history: Changes, tmp_path: Path) -> None:
    arguments = ["changes", "main.t", "--uri", str(history.http.base_url), "--state", str(tmp_path / "gone" / "state")]
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"no folder {tmp_path / 'gone'} that this user may write to" in result.stderr


def test_a_file_of_state_that_cannot_be_written_is_an_error_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "state.new").mkdir()
    with pytest.raises(DeliveryError, match=r"can't be written .Is a directory.: the next run repeats"):
        StateFile(tmp_path / "state").write(FollowedTable("a", "1.0.0"))


@pytest.mark.parametrize(
    ("key", "row", "said"),
    [
        (("id", "day"), {"_changed_row_id": 1, "id": 5}, "--columns leaves day out"),
        ((), {"_changed_row_id": None, "id": 5}, "A policy hides the row ids .* name --key"),
    ],
)
def test_a_row_without_a_key_is_no_message_of_kafka(key: tuple[str, ...], row: dict[str, Any], said: str) -> None:
    """All such rows would have the same key: they come to one partition, and a compacted topic keeps one of them."""
    sink = KafkaSink(SinkOptions("kafka://x/t", "main.t", None, key=key))
    with pytest.raises(BadInputError, match=said):
        sink.take(b"{}", row, FollowedTable("a", "1.1.0"))


def run(history: Changes, state: Path, table: str = "main.t", *options: str) -> Any:
    where = ["--uri", str(history.http.base_url), "--state", str(state)]
    return CliRunner().invoke(app, ["changes", table, *where, *options])


@pytest.mark.parametrize(
    ("statements", "options", "code", "said"),
    [
        (["ALTER TABLE t RENAME TO other"], [], 2, "main.t"),
        (["DROP TABLE t"], [], 2, "main.t"),
        (["DROP TABLE t", "CREATE TABLE t (id BIGINT)", "INSERT INTO t VALUES (1)"], [], 6, "another table now"),
        (["ALTER TABLE t RENAME COLUMN id TO number"], ["--columns", "id"], 2, "no column 'id'"),
        (["ALTER TABLE t RENAME COLUMN id TO number"], ["--key", "id"], 2, "no column 'id'"),
        (["ALTER TABLE t DROP COLUMN id"], ["--where", "id > 5"], 2, "'id'"),
        (
            ["INSERT INTO t VALUES (1, '', true)", "CALL ducklake_expire_snapshots('lake', versions => [1, 2, 3])"],
            [],
            1,
            "the oldest from that is known is",
        ),
    ],
)
def test_what_ends_a_follower(
    history: Changes, tmp_path: Path, statements: list[str], options: list[str], code: int, said: str
) -> None:
    """It prints nothing, and its file of state stays at the old place."""
    state = tmp_path / "state"
    assert run(history, state, "main.t", *options).exit_code == 0
    before = state.read_text()
    for statement in statements:
        history.duck.execute(statement).fetchall()
    result = run(history, state, "main.t", *options)
    assert (result.exit_code, result.stdout, state.read_text()) == (code, "", before), result.output
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_place_to_begin_that_a_file_of_state_overrules_is_refused(history: Changes, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert run(history, state, "main.t", "--from", "1").exit_code == 0
    before = state.read_text()
    position = json.loads(before)["position"]
    for same in (position, position.split(".")[0]):
        assert run(history, state, "main.t", "--from", same).exit_code == 0
    for other in ("1", "main"):
        result = run(history, state, "main.t", "--from", other)
        assert (result.exit_code, result.stdout, state.read_text()) == (2, "", before)
        said = f"goes on behind {position}; --from {other} is another place: leave out --from, or remove {state}"
        assert said in result.stderr
    state.unlink()
    assert run(history, state, "main.t", "--from", "1").exit_code == 0
    StateFile(state).write(FollowedTable("a", "7.3.0"))
    with pytest.raises(BadInputError, match=r"goes on behind 7\.3\.0; --from 7 is another place"):
        StateFile(state, "7").read()


def test_what_a_follower_goes_on_behind(history: Changes, services: Services, tmp_path: Path) -> None:
    """A column more, a restore, a drop that was undone, another name: each leaves what a reader of the whole has."""
    with services.database.transaction() as cursor:
        set_retention(cursor, 3600)
    state, table = tmp_path / "state", "main.t"
    path = "/v1/namespaces/main"
    run(history, state)
    ((first,),) = history.duck.execute("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall()
    found: list[dict[str, Any]] = []

    def follow() -> None:
        result = run(history, state, table)
        assert result.exit_code == 0, result.output
        found.extend(map(json.loads, result.stdout.splitlines()))

    history.duck.execute("DELETE FROM t WHERE id < 5900")
    follow()
    restored_to = history.http.get(f"{path}/tables/t").json()["metadata"]["snapshots"][0]["snapshot-id"]
    history.http.post(f"{path}/tables/t/restore", json={"to": str(restored_to)}).raise_for_status()
    follow()
    assert len(found) == 5890 + 5900
    history.http.delete(f"{path}/tables/t").raise_for_status()
    history.http.post(f"{path}/undrop", json={"name": "t", "kind": "table"}).raise_for_status()
    follow()
    history.duck.execute("ALTER TABLE t ADD COLUMN more INTEGER")
    history.duck.execute("ALTER TABLE t RENAME TO other")
    table = "main.other"
    history.duck.execute("INSERT INTO other VALUES (7, 'a', false, 8)")
    follow()
    assert found[-1]["more"] == 8
    assert [row["_changed_row_id"] for row in found] == [
        row["_changed_row_id"] for row in history.read("other", since=first)[0]
    ]
