// The sheet on which the graph is drawn: it is scrolled, dragged and zoomed, and drawn anew without being lost sight of.
import { byId, h } from "./elements.ts";
import type { Child } from "./elements.ts";
import type { Point } from "./arrange.ts";

const MARGIN = 24;
const SCALES = { least: 0.12, most: 2, whole: 0.3, readable: 0.6 };

let scale = 1;
let size = { width: 0, height: 0 };

/**
 * Put a drawing of this size onto the sheet, instead of what is there. What had the focus has it again.
 * the id of a box that shall stay where it is seen; empty: none
 */
export function put(drawn: { width: number; height: number }, children: Child[], keep: string) {
  const place = placeOf(keep);
  const restore = focusKept();
  size = drawn;
  canvas().replaceChildren(h("div", { class: "sheet" }, h("div", { class: "drawing" }, ...children)));
  zoomTo(scale);
  const after = placeOf(keep);
  if (place && after) canvas().scrollBy(after.left - place.left, after.top - place.top);
  restore();
}

/** Show all of it if boxes are still told apart then, else what is around this box. */
export function show(id: string) {
  const fitting = fittingScale();
  zoomTo(Math.min(1, fitting >= SCALES.whole ? fitting : SCALES.readable));
  boxElement(id)?.scrollIntoView({ block: "center", inline: "center" });
}

export function fit() {
  zoomTo(Math.min(1, fittingScale()));
}

export function zoomBy(factor: number) {
  const { clientWidth, clientHeight } = canvas();
  zoomAround(scale * factor, { x: clientWidth / 2, y: clientHeight / 2 });
}

/** A wheel scrolls, and with Ctrl, as a pinch on a touch pad has it, zooms; a mouse drags. */
export function listenToSheet(signal: AbortSignal) {
  const element = canvas();
  const zoom = (event: WheelEvent) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const frame = element.getBoundingClientRect();
    const point = { x: event.clientX - frame.left, y: event.clientY - frame.top };
    zoomAround(scale * Math.exp(-event.deltaY / 300), point);
  };
  element.addEventListener("wheel", zoom, { passive: false, signal });
  const grab = (event: PointerEvent) => {
    const onSheet = event.target instanceof Element && !event.target.closest("button, .line");
    if (event.button !== 0 || event.pointerType !== "mouse" || !onSheet) return;
    element.setPointerCapture(event.pointerId);
    element.classList.add("dragged");
  };
  const drag = (event: PointerEvent) => {
    if (element.classList.contains("dragged")) element.scrollBy(-event.movementX, -event.movementY);
  };
  element.addEventListener("pointerdown", grab, { signal });
  element.addEventListener("pointermove", drag, { signal });
  element.addEventListener("lostpointercapture", () => element.classList.remove("dragged"), { signal });
}

function canvas() {
  return byId("canvas", HTMLElement);
}

function boxElement(id: string) {
  return [...document.querySelectorAll(".box")].find((box) => box.getAttribute("data-id") === id);
}

function placeOf(id: string) {
  return boxElement(id)?.querySelector(".box-head")?.getBoundingClientRect();
}

/** What gives the focus back to the button of a box that has it now. */
function focusKept() {
  const active = document.activeElement;
  const id = active?.closest(".box")?.getAttribute("data-id");
  const name = active?.getAttribute("data-name");
  return () => {
    const buttons = [...(boxElement(id ?? "")?.querySelectorAll("button") ?? [])];
    buttons.find((button) => button.dataset["name"] === name)?.focus({ preventScroll: true });
  };
}

function fittingScale() {
  const { clientWidth, clientHeight } = canvas();
  const across = (clientWidth - 2 * MARGIN) / Math.max(1, size.width);
  const down = (clientHeight - 2 * MARGIN) / Math.max(1, size.height);
  return Math.max(SCALES.least, Math.min(across, down));
}

/** Zoom so that what is seen at a point of the canvas stays there. */
function zoomAround(wanted: number, point: Point) {
  const element = canvas();
  const before = scale;
  const at = { x: element.scrollLeft + point.x - MARGIN, y: element.scrollTop + point.y - MARGIN };
  zoomTo(wanted);
  const ratio = scale / before;
  element.scrollTo(at.x * ratio + MARGIN - point.x, at.y * ratio + MARGIN - point.y);
}

function zoomTo(wanted: number) {
  scale = Math.min(SCALES.most, Math.max(SCALES.least, wanted));
  const sheet = document.querySelector(".sheet");
  const drawing = document.querySelector(".drawing");
  if (!(sheet instanceof HTMLElement) || !(drawing instanceof HTMLElement)) return;
  sheet.style.width = `${size.width * scale}px`;
  sheet.style.height = `${size.height * scale}px`;
  drawing.style.transform = `scale(${scale})`;
}
