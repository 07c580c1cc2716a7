// What the page shows, as its address says it: to be shared, kept, and gone back to.

export type Direction = "both" | "upstream" | "downstream";
/**
 * node: what the graph is around, as the server knows it; empty: nothing yet. at: an instant in UTC, or empty for now.
 * columns: whether all boxes are open; toggled: those that are if others aren't, and the other way round. selected: what the panel is about, if not the centre.
 */
export interface View {
  node: string;
  column: string;
  direction: Direction;
  depth: number;
  at: string;
  columns: boolean;
  jobs: boolean;
  toggled: string[];
  selected: string;
}

export const DEPTHS = { least: 1, most: 20, usual: 3 };

/** The members of an address, in the order in which they are written. */
export const PARAMETERS = [
  "node",
  "column",
  "direction",
  "depth",
  "at",
  "columns",
  "jobs",
  "toggled",
  "selected",
] as const;
export type Search = { readonly [Name in (typeof PARAMETERS)[number]]?: string };

export function readView(search: Search): View {
  const { direction } = search;
  const at = new Date(search.at ?? "");
  return {
    node: search.node ?? "",
    column: search.column ?? "",
    direction: direction === "upstream" || direction === "downstream" ? direction : "both",
    depth: depthOf(search.depth ?? null),
    at: Number.isNaN(at.getTime()) ? "" : at.toISOString(),
    columns: search.columns === "all",
    jobs: search.jobs !== "hidden",
    toggled: readList(search.toggled),
    selected: search.selected ?? "",
  };
}

/** What `readView` reads as the same view; what is as usual isn't said. */
export function writeView(view: View): Search {
  return {
    ...(view.node ? { node: view.node } : {}),
    ...(view.column ? { column: view.column } : {}),
    ...(view.direction !== "both" ? { direction: view.direction } : {}),
    ...(view.depth !== DEPTHS.usual ? { depth: String(view.depth) } : {}),
    ...(view.at ? { at: view.at } : {}),
    ...(view.columns ? { columns: "all" } : {}),
    ...(view.jobs ? {} : { jobs: "hidden" }),
    ...(view.toggled.length > 0 ? { toggled: JSON.stringify(view.toggled) } : {}),
    ...(view.selected ? { selected: view.selected } : {}),
  };
}

/** A list of texts in JSON, or one text as it is. */
function readList(text: string | undefined): string[] {
  if (!text) return [];
  try {
    const list: unknown = JSON.parse(text);
    if (Array.isArray(list)) return list.map(String);
  } catch {
    // one id
  }
  return [text];
}

export function depthOf(text: string | null) {
  const depth = Math.round(Number(text ?? DEPTHS.usual)) || DEPTHS.usual;
  return Math.min(DEPTHS.most, Math.max(DEPTHS.least, depth));
}

/** An instant as an input of type datetime-local has it, in the reader's time zone. */
export function local(instant: string) {
  if (!instant) return "";
  const date = new Date(instant);
  const shifted = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 19);
}
