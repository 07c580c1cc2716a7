"""A job's row in the catalog: begun, renewed by a thread, ended with what came of it.

    with running(client, "compact", ("ns",), "t", lease="maintenance") as job:
        ...                                   # work; then, right before what commits:
        job.check()                           # LeaseLostError if another has taken over
        with stamped(spark, job): ...         # see session.py: snapshots carry run id and job id
        job.ends("done", snapshot_ids=[…], rows=12)

The block's end ends the job: `done` unless it called `ends`, `failed` with the error's text if it raises.
"""

import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal
from uuid import uuid4

from duckicelake.errors import JobConflictError, LeaseLostError, PipelineError
from duckicelake.pipeline.failures import explain_failure
from duckicelake.properties import JOB_KEY, RUN_ID_KEY
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.names import Namespace

LEASE_SECONDS: Final = 60

JobResult = Literal["done", "unchanged", "skipped", "failed"]


class PipelineJob:
    """A job that runs. `counts` may be changed at any time by its block; the catalog hears of them as progress."""

    def __init__(self, client: CatalogClient, namespace: Namespace, table: str, run_id: str | None) -> None:
        self.id = str(uuid4())
        self.run_id = run_id
        self.counts: dict[str, Any] = {}
        self._client, self._namespace, self._table = client, namespace, table
        self._result: JobResult = "done"
        self._message: str | None = None
        self._snapshot_ids: Sequence[int] = ()
        self._lost: str | None = None
        self._over = threading.Event()

    @property
    def summary(self) -> dict[str, str]:
        """What the summary of each snapshot of the job must hold."""
        return {JOB_KEY: self.id, **({} if self.run_id is None else {RUN_ID_KEY: self.run_id})}

    def check(self) -> None:
        """Check the lease, right before a commit: LeaseLostError if the catalog has given the job up."""
        if self._lost is None:
            self._renew()
        if self._lost is not None:
            raise LeaseLostError(f"{self._lost}; nothing of this step was committed: run the job again")

    def ends(
        self, result: JobResult, message: str | None = None, *, snapshot_ids: Sequence[int] = (), **counts: Any
    ) -> None:
        """Say what came of it; the block may still go on."""
        self._result, self._message, self._snapshot_ids = result, message, snapshot_ids
        self.counts.update(counts)

    def _renew(self) -> None:
        try:
            body = {"lease-seconds": LEASE_SECONDS, "counts": dict(self.counts)}
            self._client.renew_job(self._namespace, self._table, self.id, body)
        except JobConflictError as over:
            self._lost = str(over)

    def _keep_on(self) -> None:
        while not self._over.wait(LEASE_SECONDS / 4):
            with suppress(PipelineError):  # a catalog that is away may be back before the lease has run out
                self._renew()

    def _end(self) -> None:
        body = {
            "result": self._result,
            "message": self._message and self._message[:4000],
            "snapshot-ids": list(self._snapshot_ids),
            "counts": self.counts,
        }
        self._client.end_job(self._namespace, self._table, self.id, body)


@contextmanager
def run_job(
    client: CatalogClient,
    kind: str,
    namespace: Namespace,
    table: str,
    *,
    run_id: str | None = None,
    lease: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    engine: str = "spark",
) -> Iterator[PipelineJob]:
    """Yield the job while it runs. lease: what it alone may do to the table; JobConflictError says who does it already.

    kind: one of those in `catalog/jobs.py`.
    """
    job = PipelineJob(client, namespace, table, run_id)
    begun = {
        "id": job.id,
        "kind": kind,
        "run-id": run_id,
        "lease": lease,
        "lease-seconds": LEASE_SECONDS,
        "engine": f"{engine} on {socket.gethostname()}, process {os.getpid()}",
        "parameters": dict(parameters or {}),
    }
    client.begin_job(namespace, table, begun)
    keeper = threading.Thread(target=job._keep_on, name=f"job {job.id}", daemon=True)  # noqa: SLF001
    keeper.start()
    try:
        yield job
    except BaseException as error:
        job.ends("failed", " ".join(str(explain_failure(error) or repr(error)).split()))
        raise
    finally:
        job._over.set()  # noqa: SLF001
        keeper.join()
        with suppress(PipelineError):  # what the job did counts; a row that isn't ended is reported as lost
            job._end()  # noqa: SLF001
