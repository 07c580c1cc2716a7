// What the page shows, as its address says it: to be shared, kept, and gone back to.

/** @typedef {"both" | "upstream" | "downstream"} Direction */
/**
 * node: what the graph is around, as the server knows it; empty: nothing yet. at: an instant in UTC, or empty for now.
 * columns: whether all boxes are open; toggled: those that are if others aren't, and the other way round. selected: what the panel is about, if not the centre.
 * @typedef {{node: string, column: string, direction: Direction, depth: number, at: string, columns: boolean,
 *    jobs: boolean, toggled: string[], selected: string}} View
 */

export const DEPTHS = { least: 1, most: 20, usual: 3 };

/** @param {string} search @returns {View} */
export function read(search) {
  const query = new URLSearchParams(search);
  const direction = query.get("direction");
  const at = new Date(query.get("at") ?? "");
  return {
    node: query.get("node") ?? "",
    column: query.get("column") ?? "",
    direction: direction === "upstream" || direction === "downstream" ? direction : "both",
    depth: depthOf(query.get("depth")),
    at: Number.isNaN(at.getTime()) ? "" : at.toISOString(),
    columns: query.get("columns") === "all",
    jobs: query.get("jobs") !== "hidden",
    toggled: query.getAll("toggled"),
    selected: query.get("selected") ?? "",
  };
}

/** What `read` reads as the same view; what is as usual isn't said. @param {View} view */
export function written(view) {
  const query = new URLSearchParams();
  if (view.node) query.set("node", view.node);
  if (view.column) query.set("column", view.column);
  if (view.direction !== "both") query.set("direction", view.direction);
  if (view.depth !== DEPTHS.usual) query.set("depth", String(view.depth));
  if (view.at) query.set("at", view.at);
  if (view.columns) query.set("columns", "all");
  if (!view.jobs) query.set("jobs", "hidden");
  for (const id of view.toggled) query.append("toggled", id);
  if (view.selected) query.set("selected", view.selected);
  return query.size > 0 ? `?${query}` : location.pathname;
}

/** @param {string | null} text */
export function depthOf(text) {
  const depth = Math.round(Number(text ?? DEPTHS.usual)) || DEPTHS.usual;
  return Math.min(DEPTHS.most, Math.max(DEPTHS.least, depth));
}

/** An instant as an input of type datetime-local has it, in the reader's time zone. @param {string} instant */
export function local(instant) {
  if (!instant) return "";
  const date = new Date(instant);
  const shifted = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 19);
}
