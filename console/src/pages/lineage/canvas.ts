// The drawing of a graph: boxes over lines, on the sheet.
import { arrange, boxIn } from "./arrange.ts";
import { boxed } from "./boxes.ts";
import { h, s } from "./elements.ts";
import { boxLines, columnLines } from "./lines.ts";
import { put } from "./sheet.ts";
import type { Arrangement } from "./arrange.ts";
import type { Deeds } from "./boxes.ts";
import type { Lineage } from "./graph.ts";

export interface Drawing {
  lineage: Lineage;
  arrangement: Arrangement;
  deeds: Deeds;
}

/**
 * Draw the graph instead of what was there.
 * the ids of boxes that show their columns
 * the id of a box that shall stay where it is seen; empty: none
 */
export function draw(lineage: Lineage, open: Set<string>, deeds: Deeds, keep: string) {
  const arrangement = arrange(lineage, open);
  const drawing = { lineage, arrangement, deeds };
  const { width, height } = arrangement;
  const lines = [...boxLines(drawing), ...columnLines(drawing)];
  const svg = s("svg", { class: "lines", width, height, "aria-hidden": "true" }, ...lines);
  const boxes = h("ul", { "aria-label": "Tables, views and jobs, from left to right" }, ...boxesOf(drawing));
  put({ width, height }, [svg, boxes], keep);
}

/** Mark the box or the line that has this id, and no other. */
export function mark(id: string) {
  for (const element of document.querySelectorAll("[data-id]")) {
    element.classList.toggle("selected", element.getAttribute("data-id") === id);
  }
}

/** In the order in which they are read, and the keyboard comes to them. */
function boxesOf({ lineage, arrangement, deeds }: Drawing) {
  const placed = lineage.nodes.map((node) => ({ node, box: boxIn(arrangement, node.id) }));
  placed.sort((a, b) => a.box.left - b.box.left || a.box.top - b.box.top);
  return placed.map(({ node, box }) => boxed(node, box, lineage, deeds));
}
