"""Which privileges a commit or a move takes where grants are on. A commit: by what it says, and by what it does.

What a snapshot's summary says is its client's word. What joins and leaves main is computed, and checked again.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from duckicelake.catalog.context.caller import Capability, Principal, build_refusal
from duckicelake.catalog.context.privileges import NO_PRIVILEGE, WRITING, Privilege, Rights
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.iceberg.requirements import AssertCreate
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.snapshot import MAIN
from duckicelake.iceberg.updates import (
    AddSnapshot,
    RemovePartitionStatistics,
    RemoveStatistics,
    SetPartitionStatistics,
    SetSnapshotRef,
    SetStatistics,
    TableUpdate,
)
from duckicelake.lake.changes import ChangeSet
from duckicelake.lake.model import ADDITION_KINDS, REMOVAL_KINDS

_BY_OPERATION: Final = {"append": Privilege.INSERT, "delete": Privilege.DELETE}
"""Other operations take the right to update."""
_ABOUT_STATISTICS: Final = (SetStatistics, RemoveStatistics, SetPartitionStatistics, RemovePartitionStatistics)
_REWRITING: Final = frozenset({"rewrite_delete", "inline_flush"})


def check_commit(principal: Principal, namespace: Namespace, name: str, request: CommitTableRequest) -> None:
    """Check that the principal may commit what the request says to a table, or create it so; ForbiddenError."""
    if principal.rights is None:
        return
    wanted = Privilege.CREATE if _is_creation(request) else _find_privileges(request.updates)
    is_allowed = principal.rights.may(wanted, namespace, name) and principal.rights.may_any(
        WRITING | Privilege.ALTER | Privilege.CREATE, namespace, name
    )
    if not is_allowed or not principal.is_in_scope(Capability.WRITE, namespace):
        raise build_refusal(namespace, name, principal)


def check_change(principal: Principal, namespace: Namespace, name: str, change: ChangeSet | None) -> None:
    """Check that the principal may do what a commit to a table does to the rows of main; ForbiddenError."""
    rights = principal.rights
    if rights is None or change is None or any(step.creation for step in change.steps):
        return
    kinds = {kind for step in change.steps for kind in step.kinds}
    if not _may_change(rights, kinds, namespace, name):
        raise build_refusal(namespace, name, principal)


def check_rows(principal: Principal, namespace: Namespace, name: str, *, is_upsert: bool) -> None:
    """Check that the principal may post rows to a table: an upsert replaces those that are there. ForbiddenError."""
    wanted = Privilege.UPDATE if is_upsert else Privilege.INSERT
    if not principal.may(Capability.WRITE, namespace, name, wanted):
        raise build_refusal(namespace, name, principal)


def _may_change(rights: Rights, kinds: set[str], namespace: Namespace, name: str) -> bool:
    held = rights.find(namespace, name)
    if Privilege.UPDATE in held:
        return True
    adds, removes = bool(kinds & ADDITION_KINDS), bool(kinds & REMOVAL_KINDS)
    if kinds & _REWRITING:
        return False
    return (not adds or Privilege.INSERT in held) and (not removes or Privilege.DELETE in held)


def _is_creation(request: CommitTableRequest) -> bool:
    return any(isinstance(requirement, AssertCreate) for requirement in request.requirements)


def _find_privileges(updates: Iterable[TableUpdate]) -> Privilege:
    given = tuple(updates)
    added = {update.snapshot.snapshot_id for update in given if isinstance(update, AddSnapshot)}
    found = NO_PRIVILEGE
    for privilege in _list_privileges(given, added):
        found |= privilege
    return found


def _list_privileges(updates: Iterable[TableUpdate], added: set[int]) -> Iterator[Privilege]:
    for update in updates:
        if isinstance(update, AddSnapshot):
            yield _BY_OPERATION.get(update.snapshot.summary.get("operation", ""), Privilege.UPDATE)
        elif isinstance(update, SetSnapshotRef) and update.ref_name == MAIN and update.snapshot_id in added:
            continue
        elif not isinstance(update, _ABOUT_STATISTICS):  # what an engine counts takes any right to change the table
            yield Privilege.ALTER


def check_move(principal: Principal, source: tuple[Namespace, str], target: tuple[Namespace, str]) -> None:
    """Check that the principal may move a table or view from one name to the other where grants are on; ForbiddenError.

    In another namespace it inherits other grants. So whoever isn't its owner must be able to read it and to drop it,
    which is as much as to make it anew there, and may gain nothing.
    """
    rights = principal.rights
    if rights is None:
        return
    is_moved = source[0] != target[0]
    held = rights.find(*source)
    if is_moved and Privilege.OWNERSHIP not in held:
        gained = rights.find(target[0]) & ~(held | Privilege.CREATE)  # with a table, nothing can be created
        if gained or Privilege.SELECT | Privilege.DROP not in held:
            raise build_refusal(*source, principal)
    elif not is_moved and not rights.may(Privilege.ALTER, *source):
        raise build_refusal(*source, principal)
    if not rights.may(Privilege.CREATE, target[0]):
        raise build_refusal(target[0], "", principal)
    if not all(principal.is_in_scope(Capability.WRITE, namespace) for namespace in (source[0], target[0])):
        raise build_refusal(*source, principal)


def check_namespace_move(principal: Principal, source: Namespace, target: Namespace) -> None:
    """Check that the principal may give a namespace another name; ForbiddenError.

    Below another namespace it inherits other grants, and so does all that is in it: as for a table.
    """
    for namespace in (source, target):
        if not principal.is_in_scope(Capability.MANAGE, namespace):
            raise build_refusal(namespace, "", principal)
    rights = principal.rights
    if rights is None:
        return
    held, above = rights.find(source), rights.find(target[:-1])
    if source[:-1] == target[:-1]:
        is_allowed = rights.may(Privilege.ALTER, source)
    else:
        is_allowed = Privilege.OWNERSHIP in held or (not above & ~held and Privilege.SELECT | Privilege.DROP in held)
    if not is_allowed:
        raise build_refusal(source, "", principal)
    if not rights.may(Privilege.CREATE, target[:-1]):
        raise build_refusal(target, "", principal)
