"""A request with a key has its effect once: whoever repeats it gets the answer of the first."""

import inspect
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Barrier, Event
from typing import Any
from uuid import UUID, uuid4

import duckdb
import pytest

from duckicelake import errors
from duckicelake.catalog import namespaces, tables
from duckicelake.catalog.context.caller import Caller, Principal, build_grants
from duckicelake.catalog.context.commit_queue import CommitQueue
from duckicelake.catalog.context.idempotency import Once, run_once
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.namespaces import create_namespace
from duckicelake.catalog.tables import commit_transaction
from duckicelake.catalog.views import rename_view
from duckicelake.errors import (
    AlreadyExistsError,
    CatalogError,
    CommitFailedError,
    CommitStateUnknownError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    UnavailableError,
    UnprocessableError,
)
from duckicelake.iceberg.rest import CommitTransactionRequest, RegisterTableRequest, RenameTableRequest
from duckicelake.lake.side_tables.idempotency import RequestOutcome, find_outcome, record_outcomes
from tests.support.client import NS, Client, Json, append, duckdb_rows, pyiceberg_rows, set_properties
from tests.support.killed_process import FINGERPRINT, Work, mortal
from tests.support.seams import Fuse, FusedDatabase, FusedStore, Killed, fresh, fused
from tests.support.view_requests import create as create_view

MOST_STEPS = 100
Rows = list[tuple[int, str | None]]


def keyed(services: Services, key: UUID | None = None) -> Services:
    """A server's services for one request, which may be sent again."""
    return replace(services, once=Once(key or uuid4(), FINGERPRINT))


def names(source: str, destination: str) -> RenameTableRequest:
    both = {"source": source, "destination": destination}
    identifiers = {role: {"namespace": NS, "name": name} for role, name in both.items()}
    return RenameTableRequest.model_validate(identifiers)


def transaction(**properties: str) -> CommitTransactionRequest:
    change = {"identifier": {"namespace": NS, "name": "t"}, **set_properties(**properties)}
    return CommitTransactionRequest.model_validate({"table-changes": [change]})


def has_table(services: Services, name: str) -> bool:
    try:
        tables.table_exists(services, NS, name)
    except NoSuchTableError:
        return False
    return True


def snapshots(answer: Json) -> list[int]:
    return [snapshot["snapshot-id"] for snapshot in answer["metadata"].get("snapshots", ())]


# --- Commits


def test_repeated_commit_adds_nothing_and_gets_the_same_answer(client: Client, ducklake: Any) -> None:
    body = append(client.create()["metadata"], (1, "one"))
    once = Client(keyed(client.services))
    first = once.commit(body)
    assert once.commit(body) == first
    assert Client(fresh(once.services)).commit(body) == first
    assert len(snapshots(client.load())) == 1
    assert duckdb_rows(ducklake) == pyiceberg_rows(first) == [(1, "one")]


def test_same_commit_without_a_key_conflicts(client: Client) -> None:
    body = append(client.create()["metadata"], (1, "one"))
    client.commit(body)
    with pytest.raises(CommitFailedError):
        client.commit(body)


def test_repeated_commit_answers_with_the_table_as_it_is_by_now(client: Client, ducklake: Any) -> None:
    body = append(client.create()["metadata"], (1, "one"))
    once = Client(keyed(client.services))
    first = once.commit(body)
    client.append((2, "two"))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (3, 'three')")
    again = once.commit(body)
    assert snapshots(again)[0] == snapshots(first)[0]
    assert pyiceberg_rows(again) == [(1, "one"), (2, "two"), (3, "three")]


def test_repeated_commit_finds_its_table_under_another_name(client: Client) -> None:
    body = append(client.create()["metadata"], (1, "one"))
    once = Client(keyed(client.services))
    once.commit(body)
    tables.rename_table(client.services, names("t", "u"))
    client.create("t")
    assert pyiceberg_rows(once.commit(body)) == [(1, "one")]
    assert snapshots(client.load("t")) == []


def test_repeated_request_shows_no_table_that_has_moved_out_of_sight(client: Client) -> None:
    create_namespace(client.services, ("other",), {})
    principals = [Principal(scope, build_grants([scope])) for scope in ("ns:ns:rw", "ns:ns:w", "ns:other:r")]
    mine, pen, elsewhere = (replace(keyed(client.services), caller=Caller(each)) for each in principals)
    client.create("t")
    for services in (mine, pen):
        assert Client(services).commit(set_properties(a="1")) == Client(services).commit(set_properties(a="1"))
    moved = {
        "source": {"namespace": NS, "name": "t"},
        "destination": {"namespace": ("other",), "name": "t"},
    }
    tables.rename_table(client.services, RenameTableRequest.model_validate(moved))
    for services in (mine, pen):
        with pytest.raises(CommitStateUnknownError, match="was written, but its table has moved"):
            Client(services).commit(set_properties(a="1"))
    there = replace(mine, caller=elsewhere.caller)
    assert Client(there).commit(set_properties(a="1"))["metadata"]["properties"]["a"] == "1"


def test_repeated_commit_to_a_table_that_was_dropped_gets_the_same_answer(client: Client) -> None:
    body = append(client.create()["metadata"], (1, "one"))
    once = Client(keyed(client.services))
    first = once.commit(body)
    tables.drop_table(client.services, NS, "t", purge=False)
    assert once.commit(body) == Client(fresh(once.services)).commit(body) == first


def test_repeated_commit_to_a_table_that_was_purged_is_no_refusal(client: Client) -> None:
    """A refusal would tell the client to delete the files of its commit."""
    body = append(client.create()["metadata"], (1, "one"))
    once = Client(keyed(client.services))
    once.commit(body)
    tables.drop_table(client.services, NS, "t", purge=True)
    with pytest.raises(CommitStateUnknownError, match="was written"):
        once.commit(body)


def test_repeated_commit_that_changed_nothing_changes_nothing_later(client: Client) -> None:
    client.create(properties={"k": "v"})
    once = Client(keyed(client.services))
    once.commit(set_properties(k="v"))
    client.commit(set_properties(k="w"))
    assert once.commit(set_properties(k="v"))["metadata"]["properties"]["k"] == "w"


def test_repeated_creation_is_one_table(client: Client) -> None:
    once = Client(keyed(client.services))
    first = once.create()
    assert once.create() == first


def test_repeated_creation_by_commit_is_one_table(client: Client) -> None:
    staged = client.create(stage_create=True)["metadata"]
    body = {
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "assign-uuid", "uuid": staged["table-uuid"]},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": staged["schemas"][0]},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": staged["partition-specs"][0]},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": staged["sort-orders"][0]},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": staged["location"]},
        ],
    }
    once = Client(keyed(client.services))
    first = once.commit(body)
    assert once.commit(body) == first
    with pytest.raises(CommitFailedError, match="already exists"):
        client.commit(body)


def test_repeated_registration_is_one_table(client: Client) -> None:
    location = client.create()["metadata-location"]
    client.append((1, "one"))
    tables.unregister_table(client.services, NS, "t")
    request, once = RegisterTableRequest(name="r", metadata_location=location), keyed(client.services)
    first = tables.register_table(once, NS, request)
    assert tables.register_table(once, NS, request) == first
    tables.drop_table(client.services, NS, "r", purge=False)
    assert tables.register_table(once, NS, request) == first
    assert not has_table(client.services, "r")


def test_repeated_unregistration_shows_again_where_the_table_is(client: Client) -> None:
    client.create()
    last = client.append((1, "one"))
    once = keyed(client.services)
    first = tables.unregister_table(once, NS, "t")
    assert json.loads(first) == last
    client.create()
    assert tables.unregister_table(once, NS, "t") == tables.unregister_table(fresh(once), NS, "t") == first
    assert has_table(client.services, "t")


# --- Everything else: undone between the two, so that running it again would show


@dataclass(frozen=True, slots=True)
class Change:
    """A request; what another does after it; and what then holds unless the request runs again."""

    act: Callable[[Services], object]
    after: Callable[[Services], object]
    holds: Callable[[Services], bool]


def namespace_is_gone(services: Services) -> bool:
    try:
        namespaces.load_namespace(services, ("a",))
    except NoSuchNamespaceError:
        return True
    return False


CHANGES = {
    "create namespace": Change(
        lambda services: namespaces.create_namespace(services, ("a",), {"k": "v"}),
        lambda services: namespaces.drop_namespace(services, ("a",)),
        namespace_is_gone,
    ),
    "drop namespace": Change(
        lambda services: namespaces.drop_namespace(services, ("empty",)),
        lambda services: namespaces.create_namespace(services, ("empty",), {"new": "1"}),
        lambda services: namespaces.load_namespace(services, ("empty",)) == {"new": "1"},
    ),
    "update properties": Change(
        lambda services: namespaces.update_namespace(services, NS, ["gone", "never"], {"k": "v"}),
        lambda services: namespaces.update_namespace(services, NS, [], {"k": "w", "gone": "back"}),
        lambda services: namespaces.load_namespace(services, NS) == {"k": "w", "gone": "back"},
    ),
    "update no property": Change(
        lambda services: namespaces.update_namespace(services, NS, ["never"], {"gone": "1"}),
        lambda services: namespaces.update_namespace(services, NS, [], {"never": "1"}),
        lambda services: namespaces.load_namespace(services, NS) == {"gone": "1", "never": "1"},
    ),
    "drop table": Change(
        lambda services: tables.drop_table(services, NS, "t", purge=True),
        lambda services: Client(services).create("t"),
        lambda services: has_table(services, "t"),
    ),
    "commit to several tables": Change(
        lambda services: commit_transaction(services, transaction(k="v")),
        lambda services: Client(services).commit(set_properties(k="w")),
        lambda services: Client(services).metadata()["properties"]["k"] == "w",
    ),
    "rename table": Change(
        lambda services: tables.rename_table(services, names("t", "u")),
        lambda services: tables.rename_table(services, names("u", "t")),
        lambda services: has_table(services, "t") and not has_table(services, "u"),
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_repeated_change_is_not_made_again_and_gets_the_same_answer(client: Client, change: Change) -> None:
    namespaces.create_namespace(client.services, ("empty",), {})
    namespaces.update_namespace(client.services, NS, [], {"gone": "1"})
    client.create()
    once = keyed(client.services)
    first = change.act(once)
    change.after(client.services)
    assert change.act(once) == first
    assert change.holds(client.services)


# --- Refusals


REFUSALS = {
    "taken name": (lambda services: Client(services).create("t"), AlreadyExistsError),
    "missing table": (lambda services: tables.drop_table(services, NS, "nope", purge=False), NoSuchTableError),
    "missing namespace": (lambda services: namespaces.drop_namespace(services, ("nope",)), NoSuchNamespaceError),
    "full namespace": (lambda services: namespaces.drop_namespace(services, NS), NamespaceNotEmptyError),
}


@pytest.mark.parametrize(("act", "refusal"), REFUSALS.values(), ids=REFUSALS)
def test_repeated_refusal_stays_one(
    client: Client, act: Callable[[Services], object], refusal: type[CatalogError]
) -> None:
    client.create("t")
    once = keyed(client.services)
    with pytest.raises(refusal) as first:
        act(once)
    tables.drop_table(client.services, NS, "t", purge=False)
    client.create("nope")
    namespaces.create_namespace(client.services, ("nope",), {})
    with pytest.raises(refusal) as second:
        act(once)
    assert str(second.value) == str(first.value)
    assert has_table(client.services, "nope")


def test_conflict_stays_one_though_the_requirement_holds_again(client: Client) -> None:
    client.create()
    body = {
        "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 7}],
        "updates": [{"action": "set-properties", "updates": {"k": "v"}}],
    }
    once = Client(keyed(client.services))
    with pytest.raises(CommitFailedError):
        once.commit(body)
    holding = append(client.metadata(), (1, "one"))
    holding["updates"][0]["snapshot"]["snapshot-id"] = holding["updates"][1]["snapshot-id"] = 7
    with suppress(CatalogError):
        client.commit(holding)
    with pytest.raises(CommitFailedError):
        once.commit(body)
    assert "k" not in client.metadata()["properties"]


KINDS = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, CatalogError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_error_is_made_again_of_its_arguments(kind: type[CatalogError]) -> None:
    error = kind("feature", "message") if kind is errors.UnsupportedError else kind("message")
    again = kind(*error.args)
    assert (str(again), vars(again)) == (str(error), vars(error))
    assert "message" in str(error)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("AlreadyApplied", errors.TxnAlreadyAppliedError),
        ("CommittedBefore", errors.TxnAlreadyCommittedError),
        ("NotDelta", errors.NoDeltaLogError),
        ("JobOver", errors.JobEndedError),
        ("InvalidRequest", errors.InvalidRequestError),
        ("NoSuchTable", errors.NoSuchTableError),
        ("AlreadyExists", errors.AlreadyExistsError),
        ("CommitFailed", CommitFailedError),
    ],
)
def test_refusal_is_stored_under_the_name_that_servers_before_gave_it(
    client: Client, name: str, kind: type[CatalogError]
) -> None:
    database, once, stored = client.services.database, Once(uuid4(), FINGERPRINT), Once(uuid4(), FINGERPRINT)
    with database.transaction() as cursor:
        once.settle(cursor, error=kind("refused"))
        outcome = find_outcome(cursor, once.key)
        record_outcomes(cursor, {stored.key: RequestOutcome(FINGERPRINT, error=[name, "refused"])})
    assert outcome is not None
    assert outcome.error[:2] == [name, "refused"]
    with pytest.raises(kind, match="refused"):
        run_once(database, stored, lambda: None, lambda _: None)


def test_failure_that_may_pass_is_not_kept(client: Client) -> None:
    def silent() -> None:
        raise UnavailableError("the store does not answer")

    body = append(client.create()["metadata"], (1, "one"))
    once = keyed(client.services)
    with pytest.raises(UnavailableError):
        Client(replace(fresh(once), store=FusedStore(once.store, Fuse(0, silent)))).commit(body)
    assert pyiceberg_rows(Client(once).commit(body)) == [(1, "one")]


def test_key_of_another_request_is_refused_and_nothing_runs(client: Client) -> None:
    body = append(client.create()["metadata"], (1, "one"))
    key = uuid4()
    Client(keyed(client.services, key)).commit(body)
    other = replace(client.services, once=Once(key, b"another request"))
    with pytest.raises(UnprocessableError, match=str(key)):
        tables.drop_table(other, NS, "t", purge=False)
    assert has_table(client.services, "t")
    assert Client(keyed(client.services, key)).commit(body)["metadata"] == client.metadata()


# --- At the same time


def test_view_renamed_to_its_own_name_again_is_no_error_and_its_key_stays_taken(client: Client) -> None:
    create_view(client.services, "v", namespace="ns")
    services, request = keyed(client.services), names("v", "v")
    for _ in range(2):
        rename_view(services, request)
    assert services.once is not None
    with pytest.raises(UnprocessableError):
        rename_view(replace(services, once=Once(services.once.key, b"another request")), request)


def test_same_commit_by_many_workers_at_once_is_made_once(client: Client, ducklake: Any) -> None:
    body = append(client.create()["metadata"], (1, "one"))
    once, start = keyed(client.services), Barrier(6)

    def work() -> Json:
        worker = Client(replace(fresh(once), commits=CommitQueue()))
        start.wait()
        return worker.commit(body)

    with ThreadPoolExecutor(6) as pool:
        answers = [each.result() for each in [pool.submit(work) for _ in range(6)]]
    assert answers == [answers[0]] * 6
    assert len(snapshots(client.load())) == 1
    assert duckdb_rows(ducklake) == [(1, "one")]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_change_that_is_under_way_elsewhere_is_waited_for(client: Client, change: Change) -> None:
    """The first worker stands still before its COMMIT; the second must neither run nor be refused."""
    namespaces.create_namespace(client.services, ("empty",), {})
    namespaces.update_namespace(client.services, NS, [], {"gone": "1"})
    client.create()
    once, reached, go = keyed(client.services), Event(), Event()
    database: Any = HeldDatabase(once.database, reached, go)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(change.act, replace(once, database=database))
        assert reached.wait(20)
        second = pool.submit(change.act, replace(fresh(once), commits=CommitQueue()))
        with pytest.raises(TimeoutError):
            second.result(0.3)
        go.set()
        assert second.result(20) == first.result(20)
    change.after(client.services)
    assert change.holds(client.services)


class HeldDatabase(FusedDatabase):
    """A database whose transactions wait before COMMIT until they may go."""

    __slots__ = ()

    def __init__(self, database: Any, reached: Event, go: Event) -> None:
        class Hold:
            def burn(self, step: str) -> None:
                if step == "before COMMIT":
                    reached.set()
                    assert go.wait(20)

        hold: Any = Hold()
        super().__init__(database, hold)


# --- Crashes


def test_commit_killed_at_any_step_and_repeated_is_made_once(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    rows: Rows = []
    for step in range(MOST_STEPS):
        body, once = append(client.metadata(), (step, "new")), keyed(client.services)
        fuse = Fuse(step)
        with suppress(Killed):
            Client(fused(once, fuse)).commit(body)
        answer = Client(fresh(once)).commit(body)
        rows.append((step, "new"))
        assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == rows, fuse.log
        assert len(snapshots(answer)) == len(rows)
        if not fuse.burnt:
            assert {"before COMMIT", "after COMMIT", "after writing .json"} <= set(fuse.log)
            return
    raise AssertionError(f"a commit takes more than {MOST_STEPS} steps: {fuse.log}")


def test_process_killed_around_its_commits_and_repeated_makes_one_change(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append((1, "one"))
    rows: Rows = [(1, "one")]
    with mortal(client.services) as server:
        steps = server.serve(Work("commit", body=append(client.metadata(), (2, "two")), key=str(uuid4()))).log
        rows.append((2, "two"))
        for step in [step for step, what in enumerate(steps) if what == "after COMMIT"]:
            body, key = append(client.metadata(), (3 + step, "new")), uuid4()
            assert not server.serve(Work("commit", step, body=body, key=str(key))).answered
            answer = Client(keyed(fresh(client.services), key)).commit(body)
            rows.append((3 + step, "new"))
            assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == rows


# --- Keys grow old


def test_old_key_is_that_of_a_new_request(client: Client) -> None:
    once = Client(keyed(client.services))
    client.create("t")
    first = once.commit(set_properties(a="1"))
    client.commit(set_properties(a="2"))
    with client.services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_idempotency SET created_at = created_at - interval '31 minutes'")
    second = once.commit(set_properties(a="1"))
    assert second["metadata"]["properties"]["a"] == "1"
    assert second["metadata-location"] != first["metadata-location"]
    client.commit(set_properties(a="3"))
    assert once.commit(set_properties(a="1"))["metadata"]["properties"]["a"] == "3"


def test_old_keys_are_forgotten_and_young_ones_kept(client: Client) -> None:
    old, young, new = (uuid4() for _ in range(3))
    for key in (old, young):
        Client(keyed(client.services, key)).create(f"t{key.hex}")
    with client.services.database.transaction() as cursor:
        for minutes, key in ((31, old), (29, young)):
            age = "UPDATE duckicelake_idempotency SET created_at = created_at - %s * interval '1 minute' WHERE key = %s"
            cursor.execute(age, [minutes, key])
    Client(keyed(client.services, new)).create(f"t{new.hex}")
    with client.services.database.reading() as cursor:
        kept = {key for (key,) in cursor.execute("SELECT key FROM duckicelake_idempotency").fetchall()}
    assert kept == {young, new}
