"""Run the notebook from its first cell to its last, in a kernel of its own. A cell that fails ends it."""

import nbformat
from nbclient import NotebookClient

notebook = nbformat.read("tour.ipynb", as_version=4)
NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
nbformat.write(notebook, "tour.out.ipynb")
cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
pictures = [output for cell in cells for output in cell.outputs if "image/png" in output.get("data", {})]
print(f"tour.out.ipynb: {len(cells)} cells, {len(pictures)} picture{'s' * (len(pictures) != 1)}")
