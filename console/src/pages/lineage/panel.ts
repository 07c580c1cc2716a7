// The panel beside the graph: what is known of the box or the edge that was clicked.
import { fullName, icon, kindOf } from "./boxes.ts";
import { byId, h } from "./elements.ts";
import { isDefinition, pair } from "./graph.ts";
import { historyOf } from "./history.ts";
import { wordsOf } from "./lines.ts";
import { facts, flowSection, guessed, runList, time } from "./runs.ts";
import type { Deeds } from "./boxes.ts";
import type { Child } from "./elements.ts";
import type { ColumnFlow, Flow, Lineage, LineageNode } from "./graph.ts";

/**
 * Tell about a node, or about the edge that has this id.
 */
export function describe(lineage: Lineage, selected: string, deeds: Deeds) {
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
function aboutNode(lineage: Lineage, node: LineageNode, deeds: Deeds): Child[] {
  if (node.kind === "job") return aboutJob(lineage, node, deeds);
  const column = node.id === lineage.center ? lineage.column : null;
  return [
    title(node),
    node.dataset && datasetFacts(node),
    node.id !== lineage.center &&
      h(
        "button",
        { type: "button", class: "button primary", click: () => deeds.center(node, "") },
        "Make it the centre",
      ),
    column && h("h3", {}, `Column ${column}`),
    column && h("button", { type: "button", click: () => deeds.center(node, "") }, "Show the whole table"),
    ...(column ? columnLists(lineage, node, column, deeds) : flowLists(lineage, node, deeds)),
    node.columns.length > 0 && columnsOf(node, deeds),
    node.dataset?.table && historyOf(node.dataset),
  ];
}

function datasetFacts(node: LineageNode) {
  const dataset = node.dataset;
  const state = dataset?.state && `${dataset.state.toLowerCase()}, `;
  return facts({
    Stored: dataset?.location,
    Namespace: node.kind === "dataset" && node.over,
    "Last seen": h("span", {}, state, time(dataset?.updated)),
  });
}

function title(node: LineageNode) {
  return h(
    "h2",
    {},
    h("span", { class: "kind" }, icon(node.kind), kindOf(node)),
    h("span", { class: "called" }, fullName(node)),
  );
}
function flowLists(lineage: Lineage, node: LineageNode, deeds: Deeds): Child[] {
  return [
    ...listed("Comes from", lineage.flowsAt(node.id, "target"), (flow) => flowItem(lineage, flow, flow.source, deeds)),
    ...listed("Goes to", lineage.flowsAt(node.id, "source"), (flow) => flowItem(lineage, flow, flow.target, deeds)),
    ...(node.loops.length > 0 ? [h("h3", {}, "Read and written by the same job"), ...node.loops.map(flowSection)] : []),
  ];
}

/** A heading and a list, or nothing. */
function listed<Item>(heading: string, items: Item[], item: (item: Item) => Child) {
  return items.length === 0
    ? []
    : [h("h3", {}, heading), h("ul", { class: "flow-ends" }, ...items.map((each) => h("li", {}, item(each))))];
}

function flowItem(lineage: Lineage, flow: Flow, other: string, deeds: Deeds) {
  const node = lineage.byId.get(other);
  const by = isDefinition(flow) ? "by its definition" : `by ${flow.job?.name}`;
  return h(
    "button",
    { type: "button", click: () => deeds.select(pair(flow.source, flow.target)) },
    h("span", { class: "called" }, node ? fullName(node) : other),
    h("span", { class: "quiet" }, flow.inferred ? `${by}, inferred` : by),
  );
}
function columnLists(lineage: Lineage, node: LineageNode, column: string, deeds: Deeds): Child[] {
  const steps = (near: "source" | "target", far: "source" | "target") =>
    lineage
      .flowsAt(node.id, near)
      .flatMap((flow) =>
        flow.columns
          .filter((each) => each[`${near}-field`] === column || (near === "target" && each["target-field"] === ""))
          .map((each) => ({ id: flow[far], name: each[`${far}-field`], each })),
      );
  const item = (step: { id: string; name: string; each: ColumnFlow }) =>
    columnItem(lineage, step.id, step.name, step.each, deeds);
  return [
    ...listed("Comes from", steps("target", "source"), item),
    ...listed("Goes to", steps("source", "target"), item),
  ];
}

function columnItem(lineage: Lineage, id: string, name: string, step: ColumnFlow, deeds: Deeds) {
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

function columnsOf(node: LineageNode, deeds: Deeds) {
  const item = (column: { name: string; type: string }) =>
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
    h("ul", { class: "flow-ends" }, ...node.columns.map(item)),
  );
}
function aboutJob(lineage: Lineage, node: LineageNode, deeds: Deeds): Child[] {
  const flows = lineage.flows.filter(
    (flow) => flow.job?.namespace === node.job?.namespace && flow.job?.name === node.job?.name,
  );
  const runs = new Map(flows.flatMap((flow) => flow.runs).map((run) => [run.id, run]));
  const latest = [...runs.values()].toSorted((a, b) => b.started.localeCompare(a.started));
  const ends = (end: "source" | "target") => [...new Map(flows.map((flow) => [flow[end], flow])).values()];
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
function aboutEdge(lineage: Lineage, id: string, deeds: Deeds): Child[] {
  const flows = lineage.flowsOf(id);
  const [first] = flows;
  if (!first) return [];
  const end = (node: string) => {
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
function columnTable(flows: Flow[]): Child[] {
  const columns = flows.flatMap((flow) => flow.columns);
  if (columns.length === 0) return [];
  const row = (each: ColumnFlow) =>
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
