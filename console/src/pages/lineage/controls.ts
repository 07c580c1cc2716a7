// The bar's fields: how much of the graph is shown, and how.
import { depthOf, local } from "./address.ts";
import { byId } from "./elements.ts";
import type { Direction, View } from "./address.ts";

/** Let the fields say what the view is. */
export function fillControls(view: View) {
  setText("direction", view.direction);
  setText("depth", String(view.depth));
  setText("at", local(view.at));
  setCheck("columns", view.columns);
  setCheck("jobs", view.jobs);
}

export function listenToControls(change: (changes: Partial<View>) => void, signal: AbortSignal) {
  const form = controls();
  form.addEventListener("submit", (event) => event.preventDefault(), { signal });
  const read = (event: Event) => {
    const fields = new FormData(form);
    const at = String(fields.get("at"));
    const opened = event.target instanceof HTMLInputElement && event.target.name === "columns";
    change({
      direction: fields.get("direction") as Direction,
      depth: depthOf(String(fields.get("depth"))),
      at: at ? new Date(at).toISOString() : "",
      columns: fields.has("columns"),
      jobs: fields.has("jobs"),
      ...(opened ? { toggled: [] } : {}),
    });
  };
  form.addEventListener("change", read, { signal });
}

function controls() {
  return byId("controls", HTMLFormElement);
}

function setText(name: string, value: string) {
  const field = controls().elements.namedItem(name);
  if (field instanceof HTMLInputElement || field instanceof HTMLSelectElement) field.value = value;
}

function setCheck(name: string, value: boolean) {
  const field = controls().elements.namedItem(name);
  if (field instanceof HTMLInputElement) field.checked = value;
}
