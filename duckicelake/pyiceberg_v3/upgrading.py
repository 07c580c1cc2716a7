"""A table becomes one of version 3: upgraded, or created in a transaction."""

from collections.abc import Callable
from typing import Any

import pyiceberg.table.update
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV3
from pyiceberg.table.update import UpgradeFormatVersionUpdate
from pyiceberg.typedef import TableVersion

from duckicelake.pyiceberg_v3.patching import Patch, patch
from duckicelake.pyiceberg_v3.records import V3


@patch(Transaction, "upgrade_table_version")
def _upgrade_table_version(original: Callable[[Transaction, TableVersion], Transaction]) -> Any:
    """PyIceberg upgrades to version 2 at most."""

    def upgrade_table_version(self: Transaction, format_version: TableVersion) -> Transaction:
        if format_version != V3:
            return original(self, format_version)
        is_upgrade = self.table_metadata.format_version < V3
        return self._apply((UpgradeFormatVersionUpdate.model_validate({"format-version": V3}),)) if is_upgrade else self

    return upgrade_table_version


@patch(pyiceberg.table.update, "SUPPORTED_TABLE_FORMAT_VERSION")
def _supported_table_format_version(_: int) -> int:
    """PyIceberg applies no update that makes a table one of version 3, although its metadata can say so."""
    return V3


@patch(TableMetadataUtil, "_construct_without_validation")
def _construct_without_validation(original: "staticmethod[[TableMetadata], TableMetadata]") -> Any:
    """PyIceberg leaves an upgraded table without a next row id; by the spec the first one is 0."""

    def construct(table_metadata: TableMetadata) -> TableMetadata:
        constructed = original(table_metadata)
        if isinstance(constructed, TableMetadataV3) and constructed.next_row_id is None:
            return constructed.model_copy(update={"next_row_id": 0})
        return constructed

    return staticmethod(construct)


PATCHES: tuple[Patch, ...] = (_upgrade_table_version, _supported_table_format_version, _construct_without_validation)
