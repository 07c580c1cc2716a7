// What happened to a table or view, the latest first: asked for when somebody wants to know.
import { ask } from "./api.js";
import { h } from "./elements.js";
import { time } from "./runs.js";

/** @import { Dataset } from "./graph.js" */
/** @typedef {{version: number, timestamp: string, kind: string, principal?: string | null, engine?: string | null,
 *    previous?: string | null, metrics: Record<string, number>, notes: {message?: string | null}}} Entry */

const MOST = 50;
const COUNTS = /** @type {Record<string, (count: string) => string>} */ ({
  "added-records": (count) => `+${count} rows`,
  "deleted-records": (count) => `−${count} rows`,
  "added-data-files": (count) => `${count} files`,
});

/** A heading that opens to the history. @param {Dataset} dataset */
export function historyOf(dataset) {
  const list = h("ul", { class: "history" });
  const details = h("details", {}, h("summary", {}, "History"), list);
  details.addEventListener("toggle", () => void fill(list, dataset), { once: true });
  return details;
}

async function fill(/** @type {HTMLElement} */ list, /** @type {Dataset} */ dataset) {
  list.replaceChildren(h("li", { class: "quiet" }, "Asking…"));
  try {
    const page = await ask(pathOf(dataset), { limit: String(MOST) });
    list.replaceChildren(...page.history.map(item));
    if (page["next-before"])
      list.append(h("li", { class: "quiet" }, "There is more: duckicelake history tells all of it."));
  } catch (error) {
    list.replaceChildren(h("li", { class: "trouble" }, error instanceof Error ? error.message : String(error)));
  }
}

function pathOf(/** @type {Dataset} */ { table, kind }) {
  const namespace = (table?.namespace ?? []).map(encodeURIComponent).join("%1F");
  const things = kind === "VIEW" ? "views" : "tables";
  return `v1/namespaces/${namespace}/${things}/${encodeURIComponent(table?.name ?? "")}/history`;
}

function item(/** @type {Entry} */ entry) {
  const counts = Object.entries(entry.metrics).filter(([name, count]) => COUNTS[name] && count > 0);
  const metrics = counts.map(([name, count]) => COUNTS[name]?.(count.toLocaleString()));
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
