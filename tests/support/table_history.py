"""A table that Iceberg clients and DuckDB change in turn, and what each of its snapshots must show ever after."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import duckdb
from pyiceberg.table import StaticTable

from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.manifest.entry import FileContent, ManifestFile
from duckicelake.storage.policy import canonicalize
from tests.support.client import Client, Draft, Json, Row, duckdb_rows, live, set_ref
from tests.support.contents import Content, content_of, read_rows, vector_files, without
from tests.support.seams import fresh

Rows = frozenset[Row]
NOTHING: Rows = frozenset()
FLUSH = "CALL ducklake_flush_inlined_data('lake')"
MERGE = "CALL ducklake_merge_adjacent_files('lake')"


@dataclass(slots=True)
class History:
    """Every method is one act of one side; `shown` and `versions` are what its snapshots must show.

    Ids of rows are never used twice, so that DuckDB's row id of a row can be told from then on. `recounted` are ids of
    rows that were written again, which may get another.
    """

    services: Services
    duck: duckdb.DuckDBPyConnection
    format_version: int = 2
    shown: dict[int, Rows] = field(default_factory=dict)
    versions: dict[int, Rows] = field(default_factory=dict)
    row_ids: dict[int, int] = field(default_factory=dict)
    recounted: set[int] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    name: str = "t"

    @property
    def client(self) -> Client:
        return Client(self.services)

    def create(self) -> "History":
        self.client.create(self.name, properties={"format-version": str(self.format_version)})
        self.note()
        return self

    def metadata(self) -> Json:
        return self.client.metadata(self.name)

    def snapshot_ids(self) -> set[int]:
        return {each["snapshot-id"] for each in self.metadata()["snapshots"]}

    def head(self, ref: str = "main") -> int:
        return int(self.metadata()["refs"][ref]["snapshot-id"])

    def rows(self, ref: str = "main") -> Rows:
        return self.shown[self.head(ref)] if ref in self.metadata()["refs"] else NOTHING

    def ids(self, ref: str = "main") -> list[int]:
        return sorted(row[0] for row in self.rows(ref))

    def new_rows(self, number: int, name: str) -> list[Row]:
        return [(each, f"{name}{each}") for _, each in zip(range(number), self.numbers, strict=False)]

    # What Iceberg clients do.

    def append(self, branch: str | None = "main", number: int = 3, built_on: int | None = None) -> int:
        """Append to a branch, or stage; the new snapshot."""
        draft = self.draft(branch, "append", built_on)
        rows = self.new_rows(number, branch or "staged")
        return self.commit(draft, [draft.manifest([draft.data_file(rows)]), *draft.parent_manifests], added=rows)

    def delete(self, branch: str, ids: Iterable[int]) -> int:
        """Delete rows by position: with a delete file, or with a vector for each data file."""
        draft, wanted = self.draft(branch, "delete"), set(ids)
        content = content_of(draft)
        places = content.places(wanted)
        if self.format_version < 3:
            file = draft.delete_file([(path, n) for path, positions in places.items() for n in sorted(positions)])
            manifests = [draft.manifest([file]), *draft.parent_manifests]
        else:
            vectors = {path: positions | content.deleted.get(path, set()) for path, positions in places.items()}
            kept = without(draft, lambda file: file.referenced_data_file in vectors)
            manifests = [draft.manifest(vector_files(draft, vectors)), *kept]
        return self.commit(draft, manifests, removed=wanted)

    def overwrite(self, branch: str, ids: Iterable[int], number: int = 2) -> int:
        """Remove the data files that hold the ids with all that is in them, and add new rows."""
        draft, wanted = self.draft(branch, "overwrite"), set(ids)
        content = content_of(draft)
        paths = content.places(wanted).keys()
        gone = {row[0] for path in paths for row in content.rows[path]} - set(self._elsewhere(content, paths))
        rows = self.new_rows(number, "over")
        kept = without(draft, lambda file: {file.file_path, file.referenced_data_file} & paths)
        return self.commit(draft, [draft.manifest([draft.data_file(rows)]), *kept], added=rows, removed=gone)

    def compact(self, branch: str) -> int:
        """Rewrite all data files into one; rows get new row ids, as the client writes none."""
        draft = self.draft(branch, "replace")
        rows = sorted(self.shown[draft.parent or 0])
        self.recounted |= {row[0] for row in rows}
        kept = without(draft, lambda _: True)
        return self.commit(draft, [draft.manifest([draft.data_file(rows)]), *kept])

    def cherry_pick(self, snapshot_id: int) -> int:
        """Add the files of a staged snapshot to main."""
        draft = self.draft("main", "append")
        source = Draft(self.metadata(), built_on=snapshot_id)
        entries = [
            entry for line in source.parent_manifests for entry in live(line) if entry.snapshot_id == snapshot_id
        ]
        files = [replace(entry.data_file, first_row_id=None) for entry in entries]
        rows = [row for file in files for row in read_rows(file.file_path)]
        self.recounted |= {row[0] for row in rows}
        return self.commit(draft, [draft.manifest(files), *draft.parent_manifests], added=rows)

    def set_ref(self, name: str, snapshot_id: int, type: str = "branch", **retention: int) -> None:  # noqa: A002
        """Create or move a branch or tag: also a rollback, a fast-forward, and what publishes a staged snapshot."""
        self.update(set_ref(name, snapshot_id, type, **retention))

    def remove_ref(self, name: str) -> None:
        self.update({"action": "remove-snapshot-ref", "ref-name": name})

    def expire(self, snapshot_ids: Iterable[int]) -> None:
        """What `expire_snapshots` commits; its cleaning of files is another matter."""
        self.update({"action": "remove-snapshots", "snapshot-ids": list(snapshot_ids)})

    def update(self, *updates: Json) -> None:
        self.client.commit({"requirements": [], "updates": list(updates)}, self.name)
        self.note()

    # What DuckDB does.

    def insert(self, number: int) -> None:
        """Insert rows: up to ten are inlined."""
        rows = self.new_rows(number, "duck")
        self.duckdb(
            f"INSERT INTO lake.ns.{self.name} (id, name) VALUES {', '.join(map(str, rows))}", self.rows() | set(rows)
        )

    def delete_in_duckdb(self, ids: Iterable[int]) -> None:
        gone = set(ids)
        after = frozenset(row for row in self.rows() if row[0] not in gone)
        self.duckdb(f"DELETE FROM lake.ns.{self.name} WHERE id IN ({listed(gone)})", after)

    def rename_in_duckdb(self, ids: Iterable[int], name: str) -> None:
        changed = set(ids)
        after = frozenset((row[0], name + str(row[0])) if row[0] in changed else row for row in self.rows())
        self.duckdb(f"UPDATE lake.ns.{self.name} SET name = '{name}' || id WHERE id IN ({listed(changed)})", after)

    def duckdb(self, statement: str, after: Rows | None = None) -> None:
        """Run a statement, after which main shows these rows; None: the same as before."""
        rows = self.rows() if after is None else after
        self.duck.execute(statement).fetchall()
        refs = self.metadata()["refs"]
        if "main" in refs:
            self.shown[refs["main"]["snapshot-id"]] = rows
        self.note()

    def clean_in_duckdb(self) -> None:
        """Expire all that DuckDB may, and delete every file that it thinks no one needs."""
        self.duckdb("CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 HOUR)")
        self.duckdb("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
        self.duckdb("CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)")

    # How it is done.

    def draft(self, branch: str | None, operation: str, built_on: int | None = None) -> Draft:
        draft = Draft(self.metadata(), operation, format_version=self.format_version, branch=branch)
        draft.built_on = built_on
        return draft

    def commit(
        self, draft: Draft, manifests: Sequence[ManifestFile], added: Iterable[Row] = (), removed: Container[int] = ()
    ) -> int:
        """Commit the snapshot; its id, which the catalog may have chosen."""
        before = NOTHING if draft.parent is None else self.shown[draft.parent]
        answer = self.client.commit(draft.body(manifests), self.name)
        listed = {each["snapshot-id"] for each in answer["metadata"]["snapshots"]}
        (snapshot_id,) = listed - {each["snapshot-id"] for each in draft.metadata.get("snapshots", ())}
        self.shown[snapshot_id] = frozenset(row for row in before if row[0] not in removed) | frozenset(added)
        self.note()
        return int(snapshot_id)

    def note(self) -> None:
        """Note what the newest DuckLake snapshot shows."""
        self.versions[max(self.ducklake_snapshots())] = self.rows()

    def ducklake_snapshots(self) -> set[int]:
        with self.services.database.reading() as cursor:
            return {row[0] for row in cursor.execute("SELECT snapshot_id FROM ducklake_snapshot").fetchall()}

    def _elsewhere(self, content: Content, paths: Container[str]) -> Iterator[int]:
        for path, rows in content.rows.items():
            if path not in paths:
                yield from (row[0] for n, row in enumerate(rows) if n not in content.deleted.get(path, ()))

    # What must hold.

    def check(self) -> None:
        """Both sides show what they must: now, at every listed snapshot, and at every version that DuckDB has."""
        self.check_main()
        answer = Client(fresh(self.services)).load(self.name)
        table = StaticTable.from_metadata(answer["metadata-location"])
        for snapshot in table.snapshots():
            found = rows_of(table, snapshot.snapshot_id)
            assert found == sorted(self.shown[snapshot.snapshot_id]), snapshot
        for version in sorted(self.versions.keys() & self.ducklake_snapshots()):
            at = f"SELECT id, name FROM lake.ns.{self.name} AT (VERSION => {version}) ORDER BY ALL"
            assert self.duck.sql(at).fetchall() == sorted(self.versions[version]), version

    def check_main(self) -> None:
        """Both sides show what main shows; DuckLake has main's files and no other's, and every row its row id."""
        answer = Client(fresh(self.services)).load(self.name)
        table = StaticTable.from_metadata(answer["metadata-location"])
        expected = sorted(self.rows())
        assert duckdb_rows(self.duck, self.name) == expected
        assert (rows_of(table) if table.current_snapshot() else []) == expected
        assert self.duck.sql(f"SELECT count(*) FROM lake.ns.{self.name}").fetchall() == [(len(expected),)]
        self.check_files(answer["metadata"])
        self.check_row_ids()

    def check_files(self, metadata: Json) -> None:
        """DuckLake's live files are main's, but for those that serve inlined rows; each has one delete file at most."""
        with self.services.database.reading() as cursor:
            found = cursor.execute(LIVE_FILES, [self.name]).fetchall()
            virtual = {row[0] for row in cursor.execute(VIRTUAL_FILES, [self.name]).fetchall()}
        main = [entry.data_file for line in Draft(metadata).parent_manifests for entry in live(line)]
        data = {canonicalize(file.file_path) for file in main if file.content is FileContent.DATA}
        paths = [canonicalize(path) for path, _ in found]
        assert len(paths) == len(set(paths))
        assert set(paths) == data - {canonicalize(path) for path in virtual}
        assert all(deletes <= 1 for _, deletes in found)

    def check_row_ids(self) -> None:
        found = dict(self.duck.sql(f"SELECT id, rowid FROM lake.ns.{self.name}").fetchall())
        assert len(set(found.values())) == len(found), "a row id is there twice"
        for number in found.keys() - self.recounted:
            assert found[number] == self.row_ids.setdefault(number, found[number]), f"row {number}"


LIVE_FILES = """
    SELECT CASE WHEN d.path_is_relative THEN m.value || s.path || t.path || d.path ELSE d.path END,
           (SELECT count(*) FROM ducklake_delete_file x
            WHERE x.data_file_id = d.data_file_id AND x.end_snapshot IS NULL)
    FROM ducklake_data_file d
    JOIN ducklake_table t ON t.table_id = d.table_id AND t.end_snapshot IS NULL AND t.table_name = %s
    JOIN ducklake_schema s USING (schema_id), ducklake_metadata m
    WHERE d.end_snapshot IS NULL AND m.key = 'data_path'
"""
VIRTUAL_FILES = """
    SELECT f.path FROM duckicelake_file f
    JOIN duckicelake_virtual_file USING (file_id)
    JOIN ducklake_table t ON t.table_id = f.table_id AND t.end_snapshot IS NULL AND t.table_name = %s
"""


def rows_of(table: StaticTable, snapshot_id: int | None = None) -> list[Row]:
    read = table.scan(snapshot_id=snapshot_id).to_arrow()
    return sorted(zip(read["id"].to_pylist(), read["name"].to_pylist(), strict=True))


def listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids)) or "NULL"
