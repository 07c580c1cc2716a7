// The drawing: boxes over lines, on a sheet that is scrolled and zoomed.
import { anchor, arrange } from "./arrange.js";
import { boxed, fullName } from "./boxes.js";
import { arrow, line } from "./curves.js";
import { byId, h, s } from "./elements.js";
import { keyOf, pair } from "./graph.js";

/** @import { Arrangement, Box, Point } from "./arrange.js" */
/** @import { Deeds, Marks } from "./boxes.js" */
/** @import { ColumnFlow, Flow, Lineage, LineageEdge } from "./graph.js" */

const MARGIN = 48;
const SCALES = { least: 0.12, most: 2, readable: 0.75 };

let scale = 1;
/** @type {{width: number, height: number} | null} */
let drawn = null;

/**
 * Draw the graph instead of what was there. keep: the id of a box that shall stay where it is seen.
 * @param {Lineage} lineage
 * @param {Set<string>} open
 * @param {Marks} marks
 * @param {Deeds} deeds
 * @param {string} keep
 */
export function draw(lineage, open, marks, deeds, keep) {
  const place = placeOf(keep);
  const focused = focus();
  const arrangement = arrange(lineage, open);
  drawn = arrangement;
  const lines = [...tableLines(lineage, arrangement, marks, deeds), ...columnLines(lineage, arrangement, marks, deeds)];
  const order = lineage.nodes.toSorted((a, b) => leftOf(arrangement, a.id) - leftOf(arrangement, b.id));
  const boxes = order.map((node) => boxed(node, boxIn(arrangement, node.id), marks, deeds));
  const { width, height } = arrangement;
  byId("canvas", HTMLElement).replaceChildren(
    h(
      "div",
      { class: "sheet" },
      h(
        "div",
        { class: "drawing" },
        s("svg", { class: "lines", width, height, "aria-hidden": "true" }, ...lines),
        h("ul", { class: "boxes", "aria-label": "Tables, views and jobs, from left to right" }, ...boxes),
      ),
    ),
  );
  zoomTo(scale);
  scrollBack(keep, place);
  focused();
}

/** Show the whole graph if it can be read then, else what is around its centre. */
export function show(/** @type {string} */ center) {
  const fitting = fittingScale();
  zoomTo(Math.min(1, Math.max(SCALES.readable, fitting)));
  scrollToBox(center);
}

export function fit() {
  zoomTo(Math.min(1, fittingScale()));
}

/** @param {number} factor */
export function zoomBy(factor) {
  const canvas = byId("canvas", HTMLElement);
  const middle = { x: canvas.clientWidth / 2, y: canvas.clientHeight / 2 };
  zoomAround(scale * factor, middle);
}

/** Keys, wheel and dragging. */
export function listenToCanvas() {
  const canvas = byId("canvas", HTMLElement);
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const frame = canvas.getBoundingClientRect();
      zoomAround(scale * Math.exp(-event.deltaY / 300), {
        x: event.clientX - frame.left,
        y: event.clientY - frame.top,
      });
    },
    { passive: false },
  );
  canvas.addEventListener("pointerdown", (event) => {
    const onSheet = event.target instanceof Element && !event.target.closest("button, .line");
    if (event.button !== 0 || event.pointerType !== "mouse" || !onSheet) return;
    canvas.setPointerCapture(event.pointerId);
    canvas.classList.add("dragged");
  });
  canvas.addEventListener("pointermove", (event) => {
    if (canvas.classList.contains("dragged")) canvas.scrollBy(-event.movementX, -event.movementY);
  });
  canvas.addEventListener("lostpointercapture", () => canvas.classList.remove("dragged"));
}

function scrollToBox(/** @type {string} */ id) {
  boxElement(id)?.scrollIntoView({ block: "center", inline: "center" });
}

/** @returns {Element | undefined} */
function boxElement(/** @type {string} */ id) {
  const boxes = [...document.querySelectorAll(".box")];
  return boxes.find((each) => each.getAttribute("data-id") === id);
}

function placeOf(/** @type {string} */ id) {
  return boxElement(id)?.querySelector(".head")?.getBoundingClientRect();
}

function scrollBack(/** @type {string} */ id, /** @type {DOMRect | undefined} */ before) {
  const after = placeOf(id);
  if (before && after) byId("canvas", HTMLElement).scrollBy(after.left - before.left, after.top - before.top);
}

/** What gives the focus back to the button that has it now, once that is drawn anew. */
function focus() {
  const active = document.activeElement;
  const id = active?.closest(".box")?.getAttribute("data-id");
  const name = active?.getAttribute("data-name");
  return () => {
    if (!id) return;
    const buttons = [...(boxElement(id)?.querySelectorAll("button") ?? [])];
    buttons.find((button) => button.dataset["name"] === name)?.focus({ preventScroll: true });
  };
}

function fittingScale() {
  const canvas = byId("canvas", HTMLElement);
  if (!drawn) return 1;
  const across = (canvas.clientWidth - 2 * MARGIN) / drawn.width;
  const down = (canvas.clientHeight - 2 * MARGIN) / drawn.height;
  return Math.max(SCALES.least, Math.min(across, down));
}

/** Zoom so that what is seen at a point of the canvas stays there. */
function zoomAround(/** @type {number} */ wanted, /** @type {Point} */ point) {
  const canvas = byId("canvas", HTMLElement);
  const before = scale;
  const at = { x: canvas.scrollLeft + point.x - MARGIN, y: canvas.scrollTop + point.y - MARGIN };
  zoomTo(wanted);
  canvas.scrollTo(at.x * (scale / before) + MARGIN - point.x, at.y * (scale / before) + MARGIN - point.y);
}

function zoomTo(/** @type {number} */ wanted) {
  scale = Math.min(SCALES.most, Math.max(SCALES.least, wanted));
  const sheet = document.querySelector(".sheet");
  const drawing = document.querySelector(".drawing");
  if (!drawn || !(sheet instanceof HTMLElement) || !(drawing instanceof HTMLElement)) return;
  sheet.style.width = `${drawn.width * scale}px`;
  sheet.style.height = `${drawn.height * scale}px`;
  drawing.style.transform = `scale(${scale})`;
}

/** @returns {SVGElement[]} */
function tableLines(
  /** @type {Lineage} */ lineage,
  /** @type {Arrangement} */ arrangement,
  /** @type {Marks} */ marks,
  /** @type {Deeds} */ deeds,
) {
  return lineage.edges.map((edge) => {
    const split = edge.flows.some((flow) => columnsShown(flow, arrangement));
    const classes = [
      "line",
      edge.inferred && "inferred",
      edge.id === marks.selected && "selected",
      (split || marks.traced) && "faint",
    ];
    return stroke(arrangement.routes.get(edge.id) ?? [], classes, titleOf(lineage, edge), () => deeds.select(edge.id));
  });
}

/** The lines between columns, where at least one end is open. Indirect ones are drawn for a column that is asked for. */
function columnLines(
  /** @type {Lineage} */ lineage,
  /** @type {Arrangement} */ arrangement,
  /** @type {Marks} */ marks,
  /** @type {Deeds} */ deeds,
) {
  /** @type {Map<string, SVGElement>} */
  const lines = new Map();
  for (const flow of lineage.flows.filter((each) => columnsShown(each, arrangement))) {
    for (const column of flow.columns) {
      const on = isTraced(flow, column, marks);
      if (column.type !== "DIRECT" && !on) continue;
      const points = columnPoints(flow, column, arrangement);
      const classes = [
        "line",
        "of-column",
        column.inferred && "inferred",
        column.type === "DIRECT" ? "direct" : "indirect",
      ];
      const title = `${column["source-field"]} → ${column["target-field"] || "all of it"}: ${wordsOf(column)}`;
      const act = () => deeds.select(pair(flow.source, flow.target));
      lines.set(
        JSON.stringify([flow.source, flow.target, column["source-field"], column["target-field"], column.type]),
        stroke(points, [...classes, on && "on", marks.traced && !on && "faint"], title, act),
      );
    }
  }
  return [...lines.values()];
}

function columnsShown(/** @type {Flow} */ flow, /** @type {Arrangement} */ arrangement) {
  if (flow.source === flow.target || flow.columns.length === 0) return false;
  return [flow.source, flow.target].some((id) => boxIn(arrangement, id).rows.length > 0);
}

function isTraced(/** @type {Flow} */ flow, /** @type {ColumnFlow} */ column, /** @type {Marks} */ marks) {
  if (!marks.traced?.has(keyOf(flow.source, column["source-field"]))) return false;
  return column["target-field"] === "" || marks.traced.has(keyOf(flow.target, column["target-field"]));
}

function columnPoints(
  /** @type {Flow} */ flow,
  /** @type {ColumnFlow} */ column,
  /** @type {Arrangement} */ arrangement,
) {
  const [from, to] = [boxIn(arrangement, flow.source), boxIn(arrangement, flow.target)];
  const backward = from.left > to.left;
  const start = anchor(from, column["source-field"], backward ? "left" : "right");
  const end = anchor(to, column["target-field"] || null, backward ? "right" : "left");
  return [start, end];
}

/** A line, its head, and around both what is easier to hit with a mouse. */
function stroke(
  /** @type {Point[]} */ points,
  /** @type {(string | false | null | undefined)[]} */ classes,
  /** @type {string} */ title,
  /** @type {() => void} */ click,
) {
  const path = line(points);
  return s(
    "g",
    { class: classes.filter(Boolean).join(" "), click },
    s("title", {}, title),
    s("path", { class: "hit", d: path }),
    s("path", { class: "ink", d: path }),
    s("path", { class: "tip", d: arrow(points) }),
  );
}

function titleOf(/** @type {Lineage} */ lineage, /** @type {LineageEdge} */ edge) {
  const names = [edge.from, edge.to].map((id) => lineage.byId.get(id)).map((node) => (node ? fullName(node) : ""));
  return `${names.join(" → ")}${edge.inferred ? " (inferred)" : ""}: show the runs behind it`;
}

/** How a column comes from another, in words. @param {ColumnFlow} column */
export function wordsOf(column) {
  const kind = (column.subtype ?? column.type).toLowerCase().replaceAll("_", " ");
  return column.type === "DIRECT" ? kind : `indirectly, by ${kind}`;
}

/** @returns {Box} */
function boxIn(/** @type {Arrangement} */ arrangement, /** @type {string} */ id) {
  return arrangement.boxes.get(id) ?? { left: 0, top: 0, width: 0, height: 0, rows: [], hidden: 0 };
}

function leftOf(/** @type {Arrangement} */ arrangement, /** @type {string} */ id) {
  const box = boxIn(arrangement, id);
  return box.left * 10_000 + box.top;
}
