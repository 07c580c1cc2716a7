// The drawing of a graph: boxes over lines, on the sheet.
import { arrange, boxIn } from "./arrange.js";
import { boxed } from "./boxes.js";
import { h, s } from "./elements.js";
import { boxLines, columnLines } from "./lines.js";
import { put } from "./sheet.js";

/** @import { Arrangement } from "./arrange.js" */
/** @import { Deeds } from "./boxes.js" */
/** @import { Lineage } from "./graph.js" */
/** @typedef {{lineage: Lineage, arrangement: Arrangement, deeds: Deeds}} Drawing */

/**
 * Draw the graph instead of what was there.
 * @param {Lineage} lineage
 * @param {Set<string>} open the ids of boxes that show their columns
 * @param {Deeds} deeds
 * @param {string} keep the id of a box that shall stay where it is seen; empty: none
 */
export function draw(lineage, open, deeds, keep) {
  const arrangement = arrange(lineage, open);
  const drawing = { lineage, arrangement, deeds };
  const { width, height } = arrangement;
  const lines = [...boxLines(drawing), ...columnLines(drawing)];
  const svg = s("svg", { class: "lines", width, height, "aria-hidden": "true" }, ...lines);
  const boxes = h("ul", { "aria-label": "Tables, views and jobs, from left to right" }, ...boxesOf(drawing));
  put({ width, height }, [svg, boxes], keep);
}

/** Mark the box or the line that has this id, and no other. @param {string} id */
export function mark(id) {
  for (const element of document.querySelectorAll("[data-id]")) {
    element.classList.toggle("selected", element.getAttribute("data-id") === id);
  }
}

/** In the order in which they are read, and the keyboard comes to them. */
function boxesOf(/** @type {Drawing} */ { lineage, arrangement, deeds }) {
  const placed = lineage.nodes.map((node) => ({ node, box: boxIn(arrangement, node.id) }));
  placed.sort((a, b) => a.box.left - b.box.left || a.box.top - b.box.top);
  return placed.map(({ node, box }) => boxed(node, box, lineage, deeds));
}
