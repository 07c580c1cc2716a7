"""The option that says where an embedded lake is."""

from pathlib import Path
from typing import Annotated, Final

import typer

LakeOption = Annotated[Path | None, typer.Option("--lake", help="Folder of the embedded lake (default: ./lake).")]

NO_LAKE: Final = "there is no lake in {0}; make one with: duckicelake init --lake {0}"
"""Said where nobody has made one, of the folder."""
