"""The figures of a package are those of its files, and cycles between its folders are found."""

from pathlib import Path

from scripts.house_job.figures import find_cycles, measure

FILES = {
    "__init__.py": "",
    "storage/__init__.py": "",
    "storage/reading.py": "from shop.lake.table import Table\n\n\ndef loaded():\n    return Table\n",
    "lake/__init__.py": "",
    "lake/table.py": "class Table:\n    @property\n    def named(self):\n        return 1\n",
    "lake/schema.py": "from ..storage import reading\nfrom .table import Table\n\n\ndef read():\n    return Table\n",
}


def test_figures_count_modules_names_and_cycles(tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / "shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    figures = measure(tmp_path / "shop")

    assert (figures.modules, figures.lines, figures.median_lines, figures.longest) == (3, 15, 5, 6)
    assert (figures.functions, figures.participles) == (2, 0.5)  # properties may have such names
    assert (figures.gerund_modules, figures.folder_cycles) == (1, 1)


def test_cycles_of_folders_are_found_over_any_number_of_steps() -> None:
    arrows = {
        "a": frozenset({"b"}),
        "b": frozenset({"c", "d"}),
        "c": frozenset({"a"}),
        "d": frozenset({"e"}),
        "e": frozenset[str](),
    }

    assert find_cycles(arrows) == [["a", "b", "c"]]
