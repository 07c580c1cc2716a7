// The lines of the graph: from box to box, and where columns are shown from column to column.
import { anchor, boxIn } from "./arrange.ts";
import { fullName } from "./boxes.ts";
import { arrow, line } from "./curves.ts";
import { s } from "./elements.ts";
import { pair } from "./graph.ts";
import type { Point } from "./arrange.ts";
import type { Drawing } from "./canvas.ts";
import type { ColumnFlow, Flow, LineageEdge } from "./graph.ts";

export function boxLines({ lineage, arrangement, deeds }: Drawing) {
  return lineage.edges.map((edge) => {
    const split = edge.flows.some((flow) => columnsShown(flow, arrangement));
    const classes = {
      inferred: edge.inferred,
      faint: split || lineage.column !== null,
    };
    const points = arrangement.routes.get(edge.id) ?? [];
    const element = stroke(points, classes, titleOf(lineage, edge), () => deeds.select(edge.id));
    element.setAttribute("data-id", edge.id);
    return element;
  });
}

/**
 * Where at least one end is open. Of indirect ones, those on the way of the column that is asked for.
 */
export function columnLines(drawing: Drawing) {
  const lines: Map<string, SVGElement> = new Map();
  for (const flow of drawing.lineage.flows.filter((each) => columnsShown(each, drawing.arrangement))) {
    for (const column of flow.columns) {
      const on = drawing.lineage.column !== null;
      const key = [flow.source, flow.target, column["source-field"], column["target-field"], column.type];
      if (column.type === "DIRECT" || on) lines.set(JSON.stringify(key), columnLine(flow, column, drawing));
    }
  }
  return [...lines.values()];
}

/** How a column comes from another, in words. */
export function wordsOf(column: ColumnFlow) {
  const kind = (column.subtype ?? column.type).toLowerCase().replaceAll("_", " ");
  return column.type === "DIRECT" ? kind : `indirectly, by ${kind}`;
}

function columnLine(flow: Flow, column: ColumnFlow, { lineage, arrangement, deeds }: Drawing) {
  const [from, to] = [boxIn(arrangement, flow.source), boxIn(arrangement, flow.target)];
  const backward = from.left > to.left;
  const start = anchor(from, column["source-field"], backward ? "left" : "right");
  const end = anchor(to, column["target-field"] || null, backward ? "right" : "left");
  const direct = column.type === "DIRECT";
  const on = lineage.column !== null;
  const classes = { "of-column": true, inferred: column.inferred, direct, indirect: !direct, on };
  const title = `${column["source-field"]} → ${column["target-field"] || "all of it"}: ${wordsOf(column)}`;
  return stroke([start, end], classes, title, () => deeds.select(pair(flow.source, flow.target)));
}

function columnsShown(flow: Flow, arrangement: Drawing["arrangement"]) {
  if (flow.source === flow.target || flow.columns.length === 0) return false;
  return [flow.source, flow.target].some((id) => boxIn(arrangement, id).rows.length > 0);
}

/** A line and its head, and around the line what is easier to hit. */
function stroke(points: Point[], classes: Record<string, boolean>, title: string, click: () => void) {
  const path = line(points);
  const names = Object.keys(classes).filter((name) => classes[name]);
  return s(
    "g",
    { class: ["line", ...names].join(" "), click },
    s("title", {}, title),
    s("path", { class: "hit", d: path }),
    s("path", { class: "ink", d: path }),
    s("path", { class: "tip", d: arrow(points) }),
  );
}

function titleOf(lineage: Drawing["lineage"], edge: LineageEdge) {
  const names = [edge.from, edge.to].map((id) => lineage.byId.get(id)).map((node) => (node ? fullName(node) : ""));
  return `${names.join(" → ")}${edge.inferred ? " (inferred)" : ""}: show the runs behind it`;
}
