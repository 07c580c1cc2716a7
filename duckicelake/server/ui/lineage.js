// The page: what its address says is asked of the server and drawn; what is clicked becomes its address.
import { depthOf, local, read, written } from "./address.js";
import { ask, Refusal } from "./api.js";
import { fullName } from "./boxes.js";
import { draw } from "./canvas.js";
import { byId } from "./elements.js";
import { addressOf, Lineage } from "./graph.js";
import { tell } from "./panel.js";
import { find, listenToSearch } from "./search.js";
import { fit, listenToSheet, show, zoomBy } from "./sheet.js";
import { forget, token } from "./sign-in.js";
import { refuse, start } from "./start.js";

/** @import { Direction, View } from "./address.js" */
/** @import { Deeds } from "./boxes.js" */
/** @import { Answer, Dataset, LineageNode } from "./graph.js" */

const MOST_NODES = 500;
const ZOOM = 1.25;

let view = read(location.search);
/** @type {Answer | null} */
let answer = null;
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
function go(/** @type {Partial<View>} */ changes, /** @type {string} */ keep = "") {
  const before = view;
  view = { ...view, ...changes };
  history.pushState(null, "", written(view));
  turn(before, keep);
}

/** Do what the step from one view to the other takes: ask anew, or draw anew what is known. */
function turn(/** @type {View} */ before, /** @type {string} */ keep = "") {
  if (answer === null || question(before) !== question(view)) void load();
  else render(keep);
}

function question(/** @type {View} */ wanted) {
  return JSON.stringify([wanted.node, wanted.column, wanted.direction, wanted.depth, wanted.at]);
}

async function load() {
  asked.abort();
  asked = new AbortController();
  const { signal } = asked;
  const canvas = byId("canvas", HTMLElement);
  canvas.setAttribute("aria-busy", "true");
  fillControls();
  try {
    if (view.node === "") {
      begin(await find("", signal));
    } else {
      answer = await graph(signal);
      render();
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

function render(/** @type {string} */ keep = "") {
  if (!answer) return;
  const lineage = new Lineage(answer, view.jobs);
  byId("overlay", HTMLElement).hidden = false;
  draw(lineage, opened(lineage), view.selected, deeds, keep);
  tell(lineage, view.selected || lineage.center, deeds);
  const center = lineage.byId.get(lineage.center);
  document.title = center ? `${fullName(center)} · Lineage` : "Lineage";
  note(remark(lineage, center));
}

/** The boxes that show columns: those on the way of the column asked for, or all; but for those that were toggled. */
function opened(/** @type {Lineage} */ lineage) {
  const open = lineage.nodes.filter(
    (node) => (view.columns || lineage.way.has(node.id)) !== view.toggled.includes(node.id),
  );
  return new Set(open.map((node) => node.id));
}

function remark(/** @type {Lineage} */ lineage, /** @type {LineageNode | undefined} */ center) {
  if (lineage.truncated)
    return `There is more than the ${lineage.count} shown here: take fewer steps, or one direction.`;
  if (lineage.flows.length > 0) return "";
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

function fillControls() {
  const form = byId("controls", HTMLFormElement);
  const set = (/** @type {string} */ name, /** @type {string | boolean} */ value) => {
    const field = form.elements.namedItem(name);
    if (field instanceof HTMLInputElement && typeof value === "boolean") field.checked = value;
    else if ((field instanceof HTMLInputElement || field instanceof HTMLSelectElement) && typeof value === "string")
      field.value = value;
  };
  set("direction", view.direction);
  set("depth", String(view.depth));
  set("at", local(view.at));
  set("columns", view.columns);
  set("jobs", view.jobs);
}

function listenToControls() {
  const form = byId("controls", HTMLFormElement);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => {
    const fields = new FormData(form);
    const at = String(fields.get("at"));
    const columns = fields.has("columns");
    go({
      direction: /** @type {Direction} */ (fields.get("direction")),
      depth: depthOf(String(fields.get("depth"))),
      at: at ? new Date(at).toISOString() : "",
      columns,
      jobs: fields.has("jobs"),
      toggled: columns === view.columns ? view.toggled : [],
    });
  });
}

function listenToKeys() {
  const keys = /** @type {Record<string, () => void>} */ ({
    "/": () => byId("search", HTMLInputElement).focus(),
    "+": () => zoomBy(ZOOM),
    "-": () => zoomBy(1 / ZOOM),
    0: fit,
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
listenToControls();
listenToKeys();
listenToSheet();
listenToSearch(choose, report);
void load();
