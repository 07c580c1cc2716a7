"""PURE. What actions in the order of their versions come to (protocol, "Action Reconciliation")."""

from dataclasses import dataclass, field

from duckicelake.delta.actions import AddFile, DeltaSnapshot, DomainMetadata, FileKey, Metadata, Protocol, Txn
from duckicelake.delta.commit_files import Actions
from duckicelake.errors import DamagedLog


@dataclass(slots=True)
class Replay:
    """A table's state so far; later actions win over earlier ones of the same file, application or domain."""

    files: dict[FileKey, AddFile] = field(default_factory=dict)
    txns: dict[str, Txn] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    metadata: Metadata | None = None
    protocol: Protocol | None = None

    def take(self, actions: Actions) -> None:
        """Apply one file of the log, or a part of it; it holds no two actions on the same thing."""
        for removed in actions.removes:
            self.files.pop(removed.key, None)
        for added in actions.adds:
            self.files[added.key] = added
        self.txns.update((txn.app_id, txn) for txn in actions.txns)
        for domain in actions.domains:
            self.domains.pop(domain.domain, None)
            if not domain.removed:
                self.domains[domain.domain] = domain
        self.metadata = actions.metadata or self.metadata
        self.protocol = actions.protocol or self.protocol

    def snapshot(self, root: str, version: int, timestamp_ms: int) -> DeltaSnapshot:
        """The state as a value; DamagedLog if the log has never said how the table is to be read."""
        if self.metadata is None or self.protocol is None:
            lacking = "metaData" if self.metadata is None else "protocol"
            raise DamagedLog(f"the log of {root} has no {lacking} up to version {version}: every table's first has one")
        return DeltaSnapshot(version, timestamp_ms, self.protocol, self.metadata, self.files, self.txns, self.domains)
