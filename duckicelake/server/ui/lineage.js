// The page: what its address says is asked of the server and drawn; what is clicked becomes its address.
import { read, written } from "./address.js";
import { ask, Refusal } from "./api.js";
import { fullName } from "./boxes.js";
import { draw, mark } from "./canvas.js";
import { fillControls, listenToControls } from "./controls.js";
import { byId } from "./elements.js";
import { addressOf, Lineage } from "./graph.js";
import { tell } from "./panel.js";
import { find, listenToSearch } from "./search.js";
import { fit, listenToSheet, show, zoomBy } from "./sheet.js";
import { forget, token } from "./sign-in.js";
import { refuse, start } from "./start.js";

/** @import { View } from "./address.js" */
/** @import { Deeds } from "./boxes.js" */
/** @import { Answer, Dataset, LineageNode } from "./graph.js" */

const MOST_NODES = 500;
const ZOOM = 1.25;

let view = read(location.search);
/** @type {Answer | null} */
let answer = null;
/** @type {Lineage | null} */
let lineage = null;
let asked = new AbortController();

/** @type {Deeds} */
const deeds = {
  center(node, column) {
    if (node.dataset) go({ node: addressOf(node.dataset), column, selected: "", toggled: [] });
  },
  select: (id) => go({ selected: id }),
  toggle: (id) =>
    go({ toggled: view.toggled.includes(id) ? view.toggled.filter((each) => each !== id) : [...view.toggled, id] }, id),
};

/** Show another view, under an address of its own. keep: the box that shall stay where it is seen. */
function go(/** @type {Partial<View>} */ changes, /** @type {string | undefined} */ keep = undefined) {
  const before = view;
  view = { ...view, ...changes };
  history.pushState(null, "", written(view));
  turn(before, keep);
}

/** Do what the step from one view to the other takes: ask anew, or draw anew what is known. */
function turn(/** @type {View} */ before, /** @type {string | undefined} */ keep = undefined) {
  fillControls(view);
  const { selected: was, ...drawn } = before;
  const { selected, ...wanted } = view;
  if (answer === null || question(before) !== question(view)) void load();
  else if (JSON.stringify(drawn) !== JSON.stringify(wanted)) render(answer, keep);
  else if (was !== selected) pick();
}

/** What of a view the server is asked for. */
function question(/** @type {View} */ { node, column, direction, depth, at }) {
  return JSON.stringify([node, column, direction, depth, at]);
}

async function load() {
  asked.abort();
  asked = new AbortController();
  const { signal } = asked;
  const canvas = byId("canvas", HTMLElement);
  canvas.setAttribute("aria-busy", "true");
  try {
    if (view.node === "") {
      begin(await find("", signal));
    } else {
      answer = await graph(signal);
      render(answer);
      show(answer.node);
    }
  } catch (error) {
    if (!signal.aborted) fail(error);
  } finally {
    if (!signal.aborted) canvas.removeAttribute("aria-busy");
    byId("sign-out", HTMLButtonElement).hidden = token() === null;
  }
}

/** @param {AbortSignal} signal @returns {Promise<Answer>} */
function graph(signal) {
  const { node, column, direction, depth, at } = view;
  const named = column ? `${node}#${column}` : node;
  const query = { node: named, direction, depth: String(depth), columns: "true", limit: String(MOST_NODES) };
  return ask("lineage/v1/graph", at ? { ...query, at } : query, signal);
}

function render(/** @type {Answer} */ known, /** @type {string} */ keep = known.node) {
  lineage = new Lineage(known, view.jobs);
  byId("overlay", HTMLElement).hidden = false;
  byId("indirect", HTMLElement).hidden = lineage.column === null;
  draw(lineage, opened(lineage), deeds, keep);
  const center = lineage.byId.get(lineage.center);
  document.title = center ? `${fullName(center)} · Lineage` : "Lineage";
  note(remark(lineage, center));
  pick();
}

/** Mark and tell of what was chosen; of the centre, if that isn't there. */
function pick() {
  if (!lineage) return;
  const isThere = lineage.byId.has(view.selected) || lineage.flowsOf(view.selected).length > 0;
  mark(view.selected);
  tell(lineage, isThere ? view.selected : lineage.center, deeds);
}

/** The boxes that show columns: those on the way of the column asked for, or all; but for those that were toggled. */
function opened(/** @type {Lineage} */ { nodes, way }) {
  const open = nodes.filter((node) => (view.columns || way.has(node.id)) !== view.toggled.includes(node.id));
  return new Set(open.map((node) => node.id));
}

/** What is to be said of the graph as a whole. */
function remark(/** @type {Lineage} */ { truncated, count, flows }, /** @type {LineageNode | undefined} */ center) {
  if (truncated) return `There is more than the ${count} shown here: take fewer steps, or one direction.`;
  if (flows.length > 0) return "";
  const name = center ? fullName(center) : "this";
  const where = {
    both: `Nothing is known that ${name} comes from or goes to`,
    upstream: `Nothing is known that ${name} comes from`,
    downstream: `Nothing is known that is made of ${name}`,
  };
  const then = view.at
    ? ` as of ${new Date(view.at).toLocaleString()}. Empty “As of” for what is known now.`
    : ". Edges appear when an engine reads and writes through this catalog, or sends OpenLineage events to it.";
  return where[view.direction] + then;
}

function begin(/** @type {Dataset[]} */ datasets) {
  clear();
  start(datasets, choose);
}

/** Say why there is no graph, in its place. */
function fail(/** @type {unknown} */ error) {
  clear();
  const when = view.at ? `This is as of ${new Date(view.at).toLocaleString()}.` : "";
  refuse([sentence(error), when], () => void load());
}

function clear() {
  answer = null;
  document.title = "Lineage · duckicelake";
  byId("panel", HTMLElement).hidden = true;
  byId("overlay", HTMLElement).hidden = true;
  note("");
}

function choose(/** @type {Dataset} */ dataset) {
  go({ node: addressOf(dataset), column: "", selected: "", toggled: [] });
}

/** Say what went wrong, over what is still shown. */
function report(/** @type {unknown} */ error) {
  note(sentence(error), true);
}

function sentence(/** @type {unknown} */ error) {
  if (!(error instanceof Refusal)) console.error(error);
  const said = error instanceof Error ? error.message : String(error);
  return /[.!?]$/.test(said) ? said : `${said}.`;
}

function note(/** @type {string} */ text, /** @type {boolean} */ trouble = false) {
  const place = byId("note", HTMLElement);
  place.textContent = text;
  place.hidden = text === "";
  place.classList.toggle("trouble", trouble);
}

function listenToKeys() {
  const keys = /** @type {Record<string, () => void>} */ ({
    "/": () => byId("search", HTMLInputElement).focus(),
    "+": () => zoomBy(ZOOM),
    "-": () => zoomBy(1 / ZOOM),
    0: fit,
    Escape: () => (byId("panel", HTMLElement).hidden = true),
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLElement && event.target.closest("input, select, textarea, dialog");
    const act = keys[event.key];
    if (typing || !act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
}

byId("zoom-in", HTMLButtonElement).addEventListener("click", () => zoomBy(ZOOM));
byId("zoom-out", HTMLButtonElement).addEventListener("click", () => zoomBy(1 / ZOOM));
byId("zoom-fit", HTMLButtonElement).addEventListener("click", fit);
byId("sign-out", HTMLButtonElement).addEventListener("click", () => {
  forget();
  location.assign(location.pathname);
});
window.addEventListener("popstate", () => {
  const before = view;
  view = read(location.search);
  turn(before);
});
listenToControls(go);
listenToKeys();
listenToSheet();
listenToSearch(choose, report);
fillControls(view);
void load();
