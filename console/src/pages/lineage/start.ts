// What is shown where there is no graph: tables to choose from, or why there are none.
import { icon, shortened } from "./boxes.ts";
import { byId, h } from "./elements.ts";
import { nodeOf } from "./graph.ts";
import type { Dataset } from "./graph.ts";

export function offerDatasets(datasets: Dataset[], choose: (chosen: Dataset) => void) {
  const button = (dataset: Dataset) => card(dataset, () => choose(dataset));
  const list = h("ul", {}, ...datasets.map((dataset) => h("li", {}, button(dataset))));
  const parts =
    datasets.length > 0
      ? [
          h("h2", {}, "Choose a table or view"),
          list,
          h("p", { class: "quiet" }, "Or find another by a part of its name, above: the key / leads there."),
        ]
      : nothingYet();
  byId("canvas", HTMLElement).replaceChildren(h("div", { class: "start" }, ...parts));
}

function card(dataset: Dataset, click: () => void) {
  const { kind, name, over } = nodeOf(dataset);
  const names = h("span", { class: "names" }, h("span", { class: "over" }, over), shortened(name));
  return h("button", { type: "button", class: kind, title: `${over} ${name}`, click }, icon(kind), names);
}

interface Refusal {
  readonly title: string;
  readonly sentences: readonly string[];
  readonly again: () => void;
  /** Leads to what there is; where it isn't given, there is nothing else. */
  readonly others?: (() => void) | undefined;
}

/** Why there is nothing to see, as all pages say it, and where to go from there. */
export function showRefusal({ title, sentences, again, others }: Refusal) {
  const trouble = sentences.filter(Boolean).map((sentence) => h("p", {}, sentence));
  const buttons = [
    h("button", { type: "button", class: "button", click: again }, "Try again"),
    ...(others
      ? [h("button", { type: "button", class: "button", click: others }, "Tables and views that have one")]
      : []),
  ];
  const row = h("div", { class: "row" }, ...buttons);
  const notice = h("div", { class: "notice trouble", role: "alert" }, h("strong", {}, title), ...trouble, row);
  byId("canvas", HTMLElement).replaceChildren(h("div", { class: "start" }, h("div", { class: "card" }, notice)));
}

function nothingYet() {
  return [
    h("h2", {}, "No lineage yet"),
    h(
      "p",
      {},
      "Tables and views appear here as soon as something changes or reads them: through this catalog, or in DuckDB.",
    ),
    h("p", {}, "If there are tables already, you may not read any of them: ask whoever runs the catalog for a scope."),
  ];
}
