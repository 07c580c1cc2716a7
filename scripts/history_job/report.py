"""The closing tables: operations by outcome, faults by kind, anomalies."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from scripts.history_job.history import Anomaly, History, Outcome

SHOWN = 10


def report(
    console: Console, history: History, spoilt: Mapping[str, int], facts: Mapping[str, object], found: Sequence[Anomaly]
) -> None:
    console.print(_operations(history))
    console.print(_faults(history, spoilt))
    for name, value in facts.items():
        console.print(f"{name:28} {value}", highlight=False, markup=False)
    kinds = Counter(anomaly.kind for anomaly in found)
    shown: Counter[str] = Counter()
    for anomaly in found:
        shown[anomaly.kind] += 1
        if shown[anomaly.kind] <= SHOWN:
            console.print(f"ANOMALY ({anomaly.kind}) {anomaly.text}", highlight=False, markup=False, style="red")
    for kind, times in kinds.items():
        if times > SHOWN:
            console.print(f"… {times} anomalies of the kind {kind} in all", highlight=False, markup=False)
    operations, faults = len(history.operations), len(history.faults) + sum(spoilt.values())
    console.print(f"operations={operations} faults={faults} anomalies={len(found)}", highlight=False)


def _operations(history: History) -> Table:
    table = Table("operation", *Outcome, "asked again", title="Operations by outcome", title_justify="left")
    kinds = sorted({operation.kind for operation in history.operations})
    counts = Counter((operation.kind, operation.outcome) for operation in history.operations)
    again = Counter(operation.kind for operation in history.operations if len(operation.answers) > 1)
    for kind in kinds:
        table.add_row(kind, *(str(counts[kind, outcome] or "") for outcome in Outcome), str(again[kind] or ""))
    totals = [sum(counts[kind, outcome] for kind in kinds) for outcome in Outcome]
    table.add_section()
    table.add_row("all", *map(str, totals), str(sum(again.values())))
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _faults(history: History, spoilt: Mapping[str, int]) -> Table:
    table = Table("fault", "times", title="Faults injected", title_justify="left")
    counts = Counter(name for _, name in history.faults) + Counter(spoilt)
    for name, times in sorted(counts.items()):
        table.add_row(name, str(times))
    table.add_section()
    table.add_row("all", str(sum(counts.values())))
    table.columns[1].justify = "right"
    return table
