"""The corpus as tests see it: each table's folder, and what Spark Delta read of it at each version."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A table. `schemas` has Delta's schema by version; `refused` what Spark Delta said of versions it can't read."""

    name: str
    root: Path
    folder: Path
    schemas: Mapping[int, Mapping[str, Any]]
    refused: Mapping[int, str]
    history: Mapping[int, Mapping[str, Any]]

    @property
    def newest(self) -> int:
        return max(self.schemas)

    def rows(self, version: int) -> pa.Table:
        """As Spark Delta reads them."""
        with pa.OSFile(str(self.folder / f"{version}.arrow")) as file, pa.ipc.open_file(file) as reader:
            return reader.read_all()


def recorded(corpus: Path, name: str) -> DeltaTable:
    folder = corpus / "spark" / name
    told = json.loads((folder / "read.json").read_text())
    versions = {int(version): each for version, each in told["versions"].items()}
    return DeltaTable(
        name,
        Path(told["root"]),
        folder,
        {version: each["schema"] for version, each in versions.items() if "schema" in each},
        {version: each["error"] for version, each in versions.items() if "error" in each},
        {each["version"]: each for each in told["history"]},
    )
