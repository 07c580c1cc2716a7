"""Which rights it takes to rename a table, view or namespace, and to move it to another namespace."""

from duckicelake.catalog.context.caller import Capability, Principal, build_refusal
from duckicelake.catalog.context.privileges import Privilege
from duckicelake.iceberg.identifiers import Namespace


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
