"""PURE. Errors of a transaction that loses to another writer; it is rolled back."""


class WriteConflictError(Exception):
    """Another writer was faster. Nothing of the transaction that raises this is committed."""


class StaleBaseError(WriteConflictError):
    """The table changed after the commit was computed; nothing may be written from it."""


class StaleSnapshotError(WriteConflictError):
    """The newest snapshot, or a table's version, is another than the one that the transaction builds on."""


class RepeatedRequestError(WriteConflictError):
    """Another transaction has committed the same request."""
