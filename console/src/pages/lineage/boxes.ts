// The boxes of the graph: tables, views, datasets that aren't the lake's, and the jobs between them.
import { h, s } from "./elements.ts";
import { called } from "./graph.ts";
import type { Box } from "./arrange.ts";
import type { Child } from "./elements.ts";
import type { Lineage, LineageNode } from "./graph.ts";

/**
 * What boxes let one do.
 */
export interface Deeds {
  center: (node: LineageNode, column: string) => void;
  select: (id: string) => void;
  toggle: (id: string) => void;
}

const ICONS = {
  table: "M2 3h12v10H2zM2 6.5h12M6 6.5V13",
  view: "M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8zM8 6a2 2 0 1 0 .01 0z",
  dataset: "M4 1.8h5.5L13 5.3v8.9H4zM9.5 1.8v3.5H13",
  job: "M4.5 3v10l8-5z",
};
const LONG_CHARS = 24;
const KEPT_CHARS = 16;
const KINDS = { table: "Table", view: "View", dataset: "Outside the lake", job: "Job" };

/** A small picture of the kind. */
export function icon(kind: LineageNode["kind"]) {
  return s("svg", { class: "kind-icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, s("path", { d: ICONS[kind] }));
}

export function kindOf(node: LineageNode) {
  return node.dropped ? `${KINDS[node.kind]}, dropped` : KINDS[node.kind];
}

/** A node's full name. */
export function fullName(node: LineageNode) {
  return node.dataset ? called(node.dataset) : (node.job?.name ?? node.name);
}

export function boxed(node: LineageNode, box: Box, lineage: Lineage, deeds: Deeds) {
  const isCenter = node.id === lineage.center;
  const classes = ["box", node.kind, isCenter && "center", node.dropped && "dropped"];
  const element = h(
    "li",
    { class: classes.filter(Boolean).join(" "), "data-id": node.id },
    head(node, isCenter, deeds),
    node.loops.length > 0 && loop(node, deeds),
    box.rows.length > 0 && rows(node, box, lineage, deeds),
    node.columns.length > 0 && foot(node, box, deeds),
  );
  element.style.left = `${box.left}px`;
  element.style.top = `${box.top}px`;
  element.style.width = `${box.width}px`;
  element.style.height = `${box.height}px`;
  return element;
}

/** The name: a click makes it the centre, or says what the job did. */
function head(node: LineageNode, isCenter: boolean, deeds: Deeds) {
  const click = () => (node.kind === "job" ? deeds.select(node.id) : deeds.center(node, ""));
  const attributes = {
    class: "box-head",
    title: `${kindOf(node)} ${fullName(node)}`,
    "aria-label": spokenName(node),
    "aria-current": isCenter && "true",
    click,
  };
  const names = h("span", { class: "names" }, h("span", { class: "over" }, node.over), " ", shortened(node.name));
  const whole = h("span", { class: "whole", "aria-hidden": "true" }, fullName(node));
  return button("head", attributes, icon(node.kind), names, whole);
}

/** What a box is called by those who speak to it: the kind, then what is seen, word by word. */
function spokenName(node: LineageNode) {
  return [kindOf(node), node.over, node.name].filter(Boolean).join(" ");
}

/** A name whose end stays when there is no room for all of it: many names differ there, by their last word. */
export function shortened(name: string) {
  const kept = name.length > LONG_CHARS ? lastWordLength(name) : 0;
  const end = kept > 0 && h("span", { class: "tail" }, name.slice(-kept));
  return h("span", { class: "box-name" }, h("span", { class: "first" }, name.slice(0, name.length - kept)), end);
}

function lastWordLength(name: string): number {
  const last = name.length - Math.max(name.lastIndexOf("."), name.lastIndexOf("/"), name.lastIndexOf("_"));
  return Math.min(Math.max(last, 6), KEPT_CHARS);
}

function loop(node: LineageNode, deeds: Deeds) {
  const title = "Jobs read this and write it: show them";
  return button("loop", { class: "loop", title, "aria-label": title, click: () => deeds.select(node.id) }, "↻");
}

function foot(node: LineageNode, box: Box, deeds: Deeds) {
  const open = box.rows.length > 0;
  const count = node.columns.length === 1 ? "1 column" : `${node.columns.length} columns`;
  const text = open && box.hidden > 0 ? `${box.rows.length} of ${count}` : count;
  const turn = h("span", { class: "turn", "aria-hidden": "true" }, open ? "▾" : "▸");
  const attributes = { class: "box-foot", "aria-expanded": String(open), click: () => deeds.toggle(node.id) };
  return button("foot", attributes, turn, ` ${text}`);
}

function rows(node: LineageNode, box: Box, lineage: Lineage, deeds: Deeds) {
  const types = new Map(node.columns.map((column) => [column.name, column.type]));
  const row = (name: string) => {
    const title = `${name} ${types.get(name)}: show where it comes from and goes to`;
    const parts = [h("span", { class: "column" }, name), h("span", { class: "column-type" }, types.get(name))];
    const shown = button(`column ${name}`, { title, click: () => deeds.center(node, name) }, ...parts);
    return h("li", { class: lineage.column !== null && (node.reached.has(name) ? "on" : "off") }, shown);
  };
  return h("ul", { class: "rows", "aria-label": `Columns of ${fullName(node)}` }, ...box.rows.map(row));
}

/** A button that is found again, by this name, when its box is drawn anew. */
function button(name: string, attributes: Record<string, unknown>, ...children: Child[]) {
  return h("button", { type: "button", "data-name": name, ...attributes }, ...children);
}
