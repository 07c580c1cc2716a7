"""How much of the graph is shown at once."""

from typing import Final

MOST_NODES: Final = 2000
MOST_DEPTH: Final = 20
