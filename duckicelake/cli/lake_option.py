"""The option that says where an embedded lake is."""

from pathlib import Path
from typing import Annotated

import typer

LakeOption = Annotated[Path | None, typer.Option("--lake", help="Folder of the embedded lake (default: ./lake).")]
