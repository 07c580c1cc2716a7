"""The bridge is pure; what it must agree with is real: DuckDB's own rows, and PyIceberg."""

from tests.lake.conftest import catalog, lake

__all__ = ["catalog", "lake"]
