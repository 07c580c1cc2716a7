// The lines of edges: smooth, level where they leave and where they arrive, and through every point between.

/** @import { Point } from "./arrange.js" */

const ARROW = 7;

/** The path of a line through the points. @param {Point[]} points */
export function line(points) {
  const slopes = points.map((_, index) => slopeAt(points, index));
  const [first] = points;
  if (!first) return "";
  const pieces = points
    .slice(1)
    .map((end, index) => piece(points[index] ?? first, end, slopes[index] ?? 0, slopes[index + 1] ?? 0));
  return `M${at(first.x, first.y)}${pieces.join("")}`;
}

/** The path of an arrowhead at the end of such a line. @param {Point[]} points */
export function arrow(points) {
  const end = points.at(-1) ?? { x: 0, y: 0 };
  const back = (points.at(-2) ?? end).x <= end.x ? -ARROW : ARROW;
  return `M${at(end.x + back, end.y - ARROW / 2)}L${at(end.x, end.y)}L${at(end.x + back, end.y + ARROW / 2)}Z`;
}

/** Level at the ends and at peaks, else as steep as the flatter of both sides: so no curve swings out. */
function slopeAt(/** @type {Point[]} */ points, /** @type {number} */ index) {
  const [before, here, after] = [points[index - 1], points[index], points[index + 1]];
  if (!before || !here || !after) return 0;
  const [left, right] = [steepness(before, here), steepness(here, after)];
  return left * right <= 0 ? 0 : Math.sign(left) * Math.min(Math.abs(left), Math.abs(right));
}

function steepness(/** @type {Point} */ from, /** @type {Point} */ to) {
  return from.x === to.x ? 0 : (to.y - from.y) / (to.x - from.x);
}

function piece(
  /** @type {Point} */ from,
  /** @type {Point} */ to,
  /** @type {number} */ leaving,
  /** @type {number} */ arriving,
) {
  const reach = (to.x - from.x) * 0.45;
  const [first, second] = [at(from.x + reach, from.y + reach * leaving), at(to.x - reach, to.y - reach * arriving)];
  return `C${first} ${second} ${at(to.x, to.y)}`;
}

function at(/** @type {number} */ x, /** @type {number} */ y) {
  return `${x.toFixed(1)},${y.toFixed(1)}`;
}
