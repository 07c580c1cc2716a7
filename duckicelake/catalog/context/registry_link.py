"""What ties a warehouse in another database to the registry, which has its principals."""

from dataclasses import dataclass
from uuid import UUID

from duckicelake.errors import UnavailableError
from duckicelake.lake.setup.identity import read_lake
from duckicelake.lake.side_tables import principal_copies
from duckicelake.lake.side_tables.principal_copies import RegistryClaim
from duckicelake.postgres.database import Database
from duckicelake.postgres.failures import is_retryable


@dataclass(frozen=True, slots=True)
class RegistryLink:
    """The way from a warehouse in another database to the registry. registry: the first warehouse's database."""

    registry: Database
    claim: RegistryClaim

    @classmethod
    def build(cls, registry: Database, warehouse_id: UUID) -> "RegistryLink":
        """Build the link of a warehouse; asks the registry which lake it is in."""
        return cls(registry, RegistryClaim(str(read_lake(registry).identity), warehouse_id))

    def read_state(self, *, watches: bool = False) -> UUID:
        """Read the state of the registry's principals. watches: over the connection of those who watch."""
        opening = self.registry.watching() if watches else self.registry.statement(only_reads=True)
        with opening as cursor:
            return principal_copies.read_state(cursor)

    def copy_principals(self, database: Database) -> None:
        """Let the lake have copies of the registry's principals and memberships as they are now.

        Who copies has the claim, and reads the registry only then: no copy is replaced by an older one. Raises
        UnavailableError, for a lake that belongs to another registry, too.
        """
        try:
            with database.transaction() as cursor:
                copied = principal_copies.lock_claim(cursor, self.claim)
                with self.registry.statement(only_reads=True) as registry_cursor:
                    source = principal_copies.read_source(registry_cursor)
                if source.state != copied:
                    principal_copies.copy_principals(cursor, source)
        except Exception as error:
            if not is_retryable(error):
                raise
            raise UnavailableError(f"The principals of the registry could not be copied; try again: {error}") from error
