// Where everything stands: layers from left to right by dagre, in units of the drawing's pixels.
import { Graph, layout } from "@dagrejs/dagre";

import type { Lineage, LineageEdge, LineageNode } from "./graph.ts";

export interface Point {
  x: number;
  y: number;
}

export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
  rows: string[];
  hidden: number;
}

export interface Arrangement {
  width: number;
  height: number;
  boxes: Map<string, Box>;
  routes: Map<string, Point[]>;
}

export const WIDTH = 204;
export const HEAD = 46;
export const FOOT = 24;
export const ROW = 22;
const JOB = { width: 190, height: 40 };
const MOST_ROWS = 40;
const ROWS_PADDING = 6;

/**
 * The place of each node and the way of each edge. open: nodes whose columns are shown.
 */
export function arrange(lineage: Lineage, open: Set<string>): Arrangement {
  const graph = new Graph();
  graph.setGraph({
    rankdir: "LR",
    ranker: "tight-tree",
    nodesep: 20,
    ranksep: 44,
    edgesep: 14,
    marginx: 0,
    marginy: 0,
  });
  graph.setDefaultEdgeLabel(() => ({}));
  const rows = new Map(lineage.nodes.map((node) => [node.id, open.has(node.id) ? shownRows(lineage, node) : []]));
  for (const node of lineage.nodes) graph.setNode(node.id, sizeOf(node, rows.get(node.id) ?? []));
  for (const edge of lineage.edges) graph.setEdge(edge.from, edge.to, {});
  layout(graph);
  const boxes = new Map(
    lineage.nodes.map((node) => [node.id, boxOf(graph.node(node.id), node, rows.get(node.id) ?? [])]),
  );
  const routes = new Map(
    lineage.edges.map((edge) => [edge.id, routeOf(graph.edge(edge.from, edge.to).points, edge, boxes)]),
  );
  const { width = 0, height = 0 } = graph.graph();
  return { width, height, boxes, routes };
}

/** The box of a node.*/
export function boxIn(arrangement: Arrangement, id: string): Box {
  const box = arrangement.boxes.get(id);
  if (!box) throw new Error(`No node ${id} was arranged`);
  return box;
}

/** Where the edge of a column meets its box: at the row, or at the head if the row isn't shown. */
export function anchor(box: Box, column: string | null, side: "left" | "right") {
  const row = column === null ? -1 : box.rows.indexOf(column);
  const y = row < 0 ? box.top + Math.min(HEAD, box.height) / 2 : box.top + HEAD + ROWS_PADDING / 2 + (row + 0.5) * ROW;
  return { x: side === "left" ? box.left : box.left + box.width, y };
}

/** The columns that an open box shows, in their order: all, or of many those that edges begin or end at first. */
function shownRows(lineage: Lineage, node: LineageNode) {
  const names = node.columns.map((column) => column.name);
  if (names.length <= MOST_ROWS) return names;
  const linked = new Set(lineage.linkedColumns(node.id));
  const plain = names.filter((name) => !linked.has(name)).slice(0, Math.max(0, MOST_ROWS - linked.size));
  const shown = new Set([...linked, ...plain]);
  return names.filter((name) => shown.has(name));
}

function sizeOf(node: LineageNode, rows: string[]) {
  if (node.kind === "job") return { ...JOB };
  const foot = node.columns.length > 0 ? FOOT : 0;
  return { width: WIDTH, height: HEAD + foot + (rows.length > 0 ? rows.length * ROW + ROWS_PADDING : 0) };
}
function boxOf(
  placed: { x: number; y: number; width: number; height: number },
  node: LineageNode,
  rows: string[],
): Box {
  const { x, y, width, height } = placed;
  return { left: x - width / 2, top: y - height / 2, width, height, rows, hidden: node.columns.length - rows.length };
}

/**
 * The way from head to head, which stay where they are seen when columns open below; level through the layers between,
 * where dagre has kept a gap among the boxes. (Of dagre's points, every other one lies in a layer.)
 */
function routeOf(points: Point[], edge: LineageEdge, boxes: Map<string, Box>) {
  const from = boxes.get(edge.from);
  const to = boxes.get(edge.to);
  if (!from || !to) return points;
  const backward = from.left > to.left;
  const start = anchor(from, null, backward ? "left" : "right");
  const end = anchor(to, null, backward ? "right" : "left");
  const half = backward ? -WIDTH / 2 : WIDTH / 2;
  const between = points.slice(2, -2).filter((_, index) => index % 2 === 0);
  return [
    start,
    ...between.flatMap(({ x, y }) => [
      { x: x - half, y },
      { x: x + half, y },
    ]),
    end,
  ];
}
