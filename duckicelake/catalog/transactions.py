"""Commits to several tables at once: all of them or none, in one Postgres transaction."""

from collections import Counter

from duckicelake.catalog.commits.attempts import TableCommit
from duckicelake.catalog.commits.committing import commit_all
from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.names import full_name
from duckicelake.iceberg.rest import CommitTransactionRequest


def commit_transaction(services: Services, request: CommitTransactionRequest) -> None:
    """Commit all changes in one transaction; each table's metadata files are written when it is next loaded.

    Raises NoSuchTable, CommitFailed if any requirement doesn't hold, InvalidRequest, Unsupported; then nothing changed.
    """
    commits = []
    for number, change in enumerate(request.table_changes):
        if change.identifier is None:
            raise InvalidRequest(f"table-changes[{number}] has no identifier: say which table it changes")
        commits.append(TableCommit(change.identifier.namespace, change.identifier.name, change))
    for (namespace, name), times in Counter((each.namespace, each.name) for each in commits).items():
        if times > 1:
            raise InvalidRequest(f"{full_name(namespace, name)} is changed {times} times: put all its updates in one")
    services.run_once(lambda: commit_all(services, commits), lambda _: [])
