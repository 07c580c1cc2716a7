// What happened to a table or view, the latest first: asked for when it is opened.
import { formatCount } from "../../parts/format.ts";
import { h } from "./elements.ts";
import { time } from "./runs.ts";
import { askHistory } from "./source.ts";
import type { Dataset } from "./graph.ts";

export interface Entry {
  version: number;
  timestamp: string;
  kind: string;
  principal?: string | null;
  engine?: string | null;
  previous?: string | null;
  metrics: Record<string, number>;
  notes: { message?: string | null };
}

const COUNTS: Readonly<Record<string, (count: string) => string>> = {
  "added-records": (count) => `+${count} rows`,
  "deleted-records": (count) => `−${count} rows`,
  "added-data-files": (count) => `${count} files`,
};

/** A heading that opens to the history. */
export function historyOf(dataset: Dataset) {
  const list = h("ul", { class: "history" });
  const details = h("details", {}, h("summary", {}, "History"), list);
  details.addEventListener("toggle", () => void fill(list, dataset), { once: true });
  return details;
}

async function fill(list: HTMLElement, dataset: Dataset) {
  list.replaceChildren(h("li", { class: "quiet" }, "Asking…"));
  try {
    const { entries, isWhole } = await askHistory(dataset);
    list.replaceChildren(...entries.map(item));
    if (!isWhole) list.append(h("li", { class: "quiet" }, "The page of the table has the rest."));
  } catch (error) {
    list.replaceChildren(h("li", { class: "failure" }, error instanceof Error ? error.message : String(error)));
  }
}

function item(entry: Entry) {
  const counts = Object.entries(entry.metrics).filter(([name, count]) => COUNTS[name] && count > 0);
  const metrics = counts.map(([name, count]) => COUNTS[name]?.(formatCount(count)));
  const renamed = entry.previous && `from ${entry.previous}`;
  const by = [entry.engine, entry.principal && `by ${entry.principal}`].filter(Boolean).join(", ");
  return h(
    "li",
    {},
    h("div", {}, h("b", {}, entry.kind.replaceAll("-", " ")), " ", [renamed, ...metrics].filter(Boolean).join(", ")),
    h("div", { class: "quiet" }, `Snapshot ${entry.version}, `, time(entry.timestamp)),
    by && h("div", { class: "quiet" }, by),
    entry.notes.message && h("div", { class: "quiet" }, `“${entry.notes.message}”`),
  );
}
