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

/** Why there is nothing to see, in sentences, and a way to try again. */
export function showRefusal(sentences: string[], again: () => void) {
  const trouble = sentences.filter(Boolean).map((sentence) => h("p", { class: "failure" }, sentence));
  const button = h("button", { type: "button", class: "button primary", click: again }, "Try again");
  byId("canvas", HTMLElement).replaceChildren(h("div", { class: "start", role: "alert" }, ...trouble, button));
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
