// The lines of edges: smooth, level where they leave and where they arrive, and through every point between.

import type { Point } from "./arrange.ts";

const ARROW = 7;

/** The path of a line through the points. */
export function line(points: Point[]) {
  const slopes = points.map((_, index) => slopeAt(points, index));
  const [first] = points;
  if (!first) return "";
  const pieces = points
    .slice(1)
    .map((end, index) => piece(points[index] ?? first, end, slopes[index] ?? 0, slopes[index + 1] ?? 0));
  return `M${at(first.x, first.y)}${pieces.join("")}`;
}

/** The path of an arrowhead at the end of such a line. */
export function arrow(points: Point[]) {
  const end = points.at(-1) ?? { x: 0, y: 0 };
  const back = (points.at(-2) ?? end).x <= end.x ? -ARROW : ARROW;
  return `M${at(end.x + back, end.y - ARROW / 2)}L${at(end.x, end.y)}L${at(end.x + back, end.y + ARROW / 2)}Z`;
}

/** Level at the ends and at peaks, else as steep as the flatter of both sides: so no curve swings out. */
function slopeAt(points: Point[], index: number) {
  const [before, here, after] = [points[index - 1], points[index], points[index + 1]];
  if (!before || !here || !after) return 0;
  const [left, right] = [steepness(before, here), steepness(here, after)];
  return left * right <= 0 ? 0 : Math.sign(left) * Math.min(Math.abs(left), Math.abs(right));
}

function steepness(from: Point, to: Point) {
  return from.x === to.x ? 0 : (to.y - from.y) / (to.x - from.x);
}

function piece(from: Point, to: Point, leaving: number, arriving: number) {
  const reach = (to.x - from.x) * 0.45;
  const [first, second] = [at(from.x + reach, from.y + reach * leaving), at(to.x - reach, to.y - reach * arriving)];
  return `C${first} ${second} ${at(to.x, to.y)}`;
}

function at(x: number, y: number) {
  return `${x.toFixed(1)},${y.toFixed(1)}`;
}
