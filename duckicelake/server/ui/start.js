// What is shown where there is no graph: tables to choose from, or why there are none.
import { icon, shortened } from "./boxes.js";
import { byId, h } from "./elements.js";
import { nodeOf } from "./graph.js";

/** @import { Dataset } from "./graph.js" */

/** @param {Dataset[]} datasets @param {(chosen: Dataset) => void} choose */
export function start(datasets, choose) {
  const button = (/** @type {Dataset} */ dataset) => card(dataset, () => choose(dataset));
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

function card(/** @type {Dataset} */ dataset, /** @type {() => void} */ click) {
  const { kind, name, over } = nodeOf(dataset);
  const names = h("span", { class: "names" }, h("span", { class: "over" }, over), shortened(name));
  return h("button", { type: "button", class: kind, title: `${over} ${name}`, click }, icon(kind), names);
}

/** Why there is nothing to see, in sentences, and a way to try again. @param {string[]} sentences @param {() => void} again */
export function refuse(sentences, again) {
  const trouble = sentences.filter(Boolean).map((sentence) => h("p", { class: "trouble" }, sentence));
  const button = h("button", { type: "button", class: "primary", click: again }, "Try again");
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
