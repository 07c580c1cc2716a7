// The bar's fields: how much of the graph is shown, and how.
import { depthOf, local } from "./address.js";
import { byId } from "./elements.js";

/** @import { Direction, View } from "./address.js" */

/** Let the fields say what the view is. @param {View} view */
export function fillControls(view) {
  setText("direction", view.direction);
  setText("depth", String(view.depth));
  setText("at", local(view.at));
  setCheck("columns", view.columns);
  setCheck("jobs", view.jobs);
}

/** @param {(changes: Partial<View>) => void} change */
export function listenToControls(change) {
  const form = controls();
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", (event) => {
    const fields = new FormData(form);
    const at = String(fields.get("at"));
    const opened = event.target instanceof HTMLInputElement && event.target.name === "columns";
    change({
      direction: /** @type {Direction} */ (fields.get("direction")),
      depth: depthOf(String(fields.get("depth"))),
      at: at ? new Date(at).toISOString() : "",
      columns: fields.has("columns"),
      jobs: fields.has("jobs"),
      ...(opened ? { toggled: [] } : {}),
    });
  });
}

function controls() {
  return byId("controls", HTMLFormElement);
}

function setText(/** @type {string} */ name, /** @type {string} */ value) {
  const field = controls().elements.namedItem(name);
  if (field instanceof HTMLInputElement || field instanceof HTMLSelectElement) field.value = value;
}

function setCheck(/** @type {string} */ name, /** @type {boolean} */ value) {
  const field = controls().elements.namedItem(name);
  if (field instanceof HTMLInputElement) field.checked = value;
}
