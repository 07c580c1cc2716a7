"""What both writers are: a stream of rows, and what it is told."""

from duckicelake.client.portions import Batching
from duckicelake.client.sending import OnUnknown, Target
from duckicelake.client.stream import Progress, Stream
from duckicelake.errors import RowsNotWritten
from duckicelake.rest.connection import Connection


class Face:
    """Appends rows to a table, in order, in batches and in the background; may be used by several threads or tasks.

    table: as `ns.t`; it must be there. on_unknown: what happens to columns that the table doesn't have. retry_seconds:
    for how long a batch is sent again while the catalog is away or busy; it is written once all the same. app_id: of a
    stream that, appended from its beginning again, goes on where it was: rows that are there are skipped.

    A batch that the catalog refuses ends the writer: from then on all raises RowsNotWritten, which has the reason, the
    rows of the batch and those behind it, which weren't sent.
    """

    def __init__(
        self,
        table: str,
        connection: Connection | None = None,
        batching: Batching | None = None,
        *,
        app_id: str | None = None,
        on_unknown: OnUnknown = "reject",
        retry_seconds: float = 300.0,
    ) -> None:
        self._batching = batching or Batching()
        target = Target(table, connection or Connection(), on_unknown, app_id, retry_seconds)
        self._stream = Stream(target, self._batching)

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return self._stream.progress

    def abandon(self) -> None:
        """End without waiting: what isn't in the table by now may or may not get there."""
        self._stream.stop()


def ends_at_once(error: BaseException | None) -> bool:
    """Whether a block that ends so doesn't wait for its rows: it was interrupted, or they are why it failed."""
    return isinstance(error, RowsNotWritten) or (error is not None and not isinstance(error, Exception))
