// The panel beside the graph: what is known of the box or the edge that was clicked.
import { fullName, icon, kindOf } from "./boxes.js";
import { byId, h } from "./elements.js";
import { isDefinition, pair } from "./graph.js";
import { historyOf } from "./history.js";
import { wordsOf } from "./lines.js";
import { facts, flowSection, guessed, runList, time } from "./runs.js";

/** @import { Deeds } from "./boxes.js" */
/** @import { Child } from "./elements.js" */
/** @import { ColumnFlow, Flow, Lineage, LineageNode } from "./graph.js" */

/**
 * Tell about a node, or about the edge that has this id.
 * @param {Lineage} lineage
 * @param {string} selected
 * @param {Deeds} deeds
 */
export function tell(lineage, selected, deeds) {
  const panel = byId("panel", HTMLElement);
  const close = h(
    "button",
    { type: "button", class: "close", "aria-label": "Close", click: () => (panel.hidden = true) },
    "×",
  );
  const node = lineage.byId.get(selected);
  const parts = node ? aboutNode(lineage, node, deeds) : aboutEdge(lineage, selected, deeds);
  const hadFocus = panel.contains(document.activeElement);
  panel.replaceChildren(close, ...parts.filter((part) => part instanceof Node));
  panel.hidden = parts.length === 0;
  panel.scrollTop = 0;
  if (hadFocus) panel.focus();
}

/** @returns {Child[]} */
function aboutNode(/** @type {Lineage} */ lineage, /** @type {LineageNode} */ node, /** @type {Deeds} */ deeds) {
  if (node.kind === "job") return aboutJob(lineage, node, deeds);
  const column = node.id === lineage.center ? lineage.column : null;
  return [
    title(node),
    node.dataset && datasetFacts(node),
    node.id !== lineage.center &&
      h("button", { type: "button", class: "primary", click: () => deeds.center(node, "") }, "Make it the centre"),
    column && h("h3", {}, `Column ${column}`),
    column && h("button", { type: "button", click: () => deeds.center(node, "") }, "Show the whole table"),
    ...(column ? columnLists(lineage, node, column, deeds) : flowLists(lineage, node, deeds)),
    node.columns.length > 0 && columnsOf(node, deeds),
    node.dataset?.table && historyOf(node.dataset),
  ];
}

function datasetFacts(/** @type {LineageNode} */ node) {
  const dataset = node.dataset;
  const state = dataset?.state && `${dataset.state.toLowerCase()}, `;
  return facts({
    Stored: dataset?.location,
    Namespace: node.kind === "dataset" && node.over,
    "Last seen": h("span", {}, state, time(dataset?.updated)),
  });
}

function title(/** @type {LineageNode} */ node) {
  return h(
    "h2",
    {},
    h("span", { class: "kind" }, icon(node.kind), kindOf(node)),
    h("span", { class: "called" }, fullName(node)),
  );
}

/** @returns {Child[]} */
function flowLists(/** @type {Lineage} */ lineage, /** @type {LineageNode} */ node, /** @type {Deeds} */ deeds) {
  return [
    ...listed("Comes from", lineage.flowsAt(node.id, "target"), (flow) => flowItem(lineage, flow, flow.source, deeds)),
    ...listed("Goes to", lineage.flowsAt(node.id, "source"), (flow) => flowItem(lineage, flow, flow.target, deeds)),
    ...(node.loops.length > 0 ? [h("h3", {}, "Read and written by the same job"), ...node.loops.map(flowSection)] : []),
  ];
}

/** A heading and a list, or nothing. @template Item @param {string} heading @param {Item[]} items @param {(item: Item) => Child} item */
function listed(heading, items, item) {
  return items.length === 0
    ? []
    : [h("h3", {}, heading), h("ul", { class: "ends" }, ...items.map((each) => h("li", {}, item(each))))];
}

function flowItem(
  /** @type {Lineage} */ lineage,
  /** @type {Flow} */ flow,
  /** @type {string} */ other,
  /** @type {Deeds} */ deeds,
) {
  const node = lineage.byId.get(other);
  const by = isDefinition(flow) ? "by its definition" : `by ${flow.job?.name}`;
  return h(
    "button",
    { type: "button", click: () => deeds.select(pair(flow.source, flow.target)) },
    h("span", { class: "called" }, node ? fullName(node) : other),
    h("span", { class: "quiet" }, flow.inferred ? `${by}, inferred` : by),
  );
}

/** @returns {Child[]} */
function columnLists(
  /** @type {Lineage} */ lineage,
  /** @type {LineageNode} */ node,
  /** @type {string} */ column,
  /** @type {Deeds} */ deeds,
) {
  /** @param {"source" | "target"} near @param {"source" | "target"} far */
  const steps = (near, far) =>
    lineage
      .flowsAt(node.id, near)
      .flatMap((flow) =>
        flow.columns
          .filter((each) => each[`${near}-field`] === column || (near === "target" && each["target-field"] === ""))
          .map((each) => ({ id: flow[far], name: each[`${far}-field`], each })),
      );
  const item = (/** @type {{id: string, name: string, each: ColumnFlow}} */ step) =>
    columnItem(lineage, step.id, step.name, step.each, deeds);
  return [
    ...listed("Comes from", steps("target", "source"), item),
    ...listed("Goes to", steps("source", "target"), item),
  ];
}

function columnItem(
  /** @type {Lineage} */ lineage,
  /** @type {string} */ id,
  /** @type {string} */ name,
  /** @type {ColumnFlow} */ step,
  /** @type {Deeds} */ deeds,
) {
  const node = lineage.byId.get(id);
  if (!node) return null;
  const words = step.inferred ? `${wordsOf(step)}, inferred` : wordsOf(step);
  return h(
    "button",
    { type: "button", title: step.description, click: () => deeds.center(node, name) },
    h("span", { class: "called" }, name ? `${fullName(node)} · ${name}` : fullName(node)),
    h("span", { class: "quiet" }, words),
  );
}

function columnsOf(/** @type {LineageNode} */ node, /** @type {Deeds} */ deeds) {
  const item = (/** @type {{name: string, type: string}} */ column) =>
    h(
      "li",
      {},
      h(
        "button",
        { type: "button", click: () => deeds.center(node, column.name) },
        h("span", { class: "called" }, column.name),
        h("span", { class: "quiet" }, column.type),
      ),
    );
  return h(
    "details",
    {},
    h("summary", {}, `Columns (${node.columns.length})`),
    h("ul", { class: "ends" }, ...node.columns.map(item)),
  );
}

/** @returns {Child[]} */
function aboutJob(/** @type {Lineage} */ lineage, /** @type {LineageNode} */ node, /** @type {Deeds} */ deeds) {
  const flows = lineage.flows.filter(
    (flow) => flow.job?.namespace === node.job?.namespace && flow.job?.name === node.job?.name,
  );
  const runs = new Map(flows.flatMap((flow) => flow.runs).map((run) => [run.id, run]));
  const latest = [...runs.values()].toSorted((a, b) => b.started.localeCompare(a.started));
  const ends = (/** @type {"source" | "target"} */ end) => [
    ...new Map(flows.map((flow) => [flow[end], flow])).values(),
  ];
  const guess = flows.find((flow) => flow.inferred);
  return [
    title(node),
    facts({
      Namespace: node.job?.namespace,
      Kind: node.job?.type?.toLowerCase(),
      Integration: node.job?.integration?.toLowerCase(),
    }),
    guess && h("p", { class: "guess" }, guessed(guess.confidence)),
    ...listed("Reads", ends("source"), (flow) => flowItem(lineage, flow, flow.source, deeds)),
    ...listed("Writes", ends("target"), (flow) => flowItem(lineage, flow, flow.target, deeds)),
    h("h3", {}, "Runs"),
    runList(latest),
  ];
}

/** @returns {Child[]} */
function aboutEdge(/** @type {Lineage} */ lineage, /** @type {string} */ id, /** @type {Deeds} */ deeds) {
  const flows = lineage.flowsOf(id);
  const [first] = flows;
  if (!first) return [];
  const end = (/** @type {string} */ node) => {
    const there = lineage.byId.get(node);
    return (
      there &&
      h(
        "button",
        { type: "button", class: "end", click: () => deeds.center(there, "") },
        icon(there.kind),
        fullName(there),
      )
    );
  };
  const sources = [...new Set(flows.map((flow) => flow.source))];
  const targets = [...new Set(flows.map((flow) => flow.target))];
  return [
    h(
      "h2",
      {},
      h("span", { class: "kind" }, "Edge"),
      ...sources.map(end),
      h("span", { class: "into", "aria-label": "goes to" }, "↓"),
      ...targets.map(end),
    ),
    ...flows.map(flowSection),
    ...columnTable(flows),
  ];
}

/** @returns {Child[]} */
function columnTable(/** @type {Flow[]} */ flows) {
  const columns = flows.flatMap((flow) => flow.columns);
  if (columns.length === 0) return [];
  const row = (/** @type {ColumnFlow} */ each) =>
    h(
      "tr",
      {},
      h("td", {}, each["source-field"]),
      h("td", {}, each["target-field"] || "all of it"),
      h("td", { class: "quiet" }, wordsOf(each)),
    );
  const header = h("tr", {}, ...["From", "To", "How"].map((text) => h("th", { scope: "col" }, text)));
  return [h("h3", {}, "Columns"), h("table", {}, h("thead", {}, header), h("tbody", {}, ...columns.map(row)))];
}
