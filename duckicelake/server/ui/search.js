// The field that finds tables: what is typed is looked for while it is typed, and one is chosen with keys or a click.
import { ask } from "./api.js";
import { icon, kindOf } from "./boxes.js";
import { byId, h } from "./elements.js";
import { called, nodeOf } from "./graph.js";

/** @import { Dataset } from "./graph.js" */

const PAUSE = 150;
const MOST = 50;

/** What the server finds by a part of a name; all, the latest first, by none. @param {string} text @param {AbortSignal} [signal] */
export async function find(text, signal) {
  /** @type {{datasets: Dataset[]}} */
  const answer = await ask("lineage/v1/datasets", { search: text, limit: String(MOST) }, signal);
  return answer.datasets;
}

/** @param {(chosen: Dataset) => void} choose @param {(error: unknown) => void} report */
export function listenToSearch(choose, report) {
  const input = byId("search", HTMLInputElement);
  const list = byId("found", HTMLUListElement);
  /** @type {Dataset[]} */
  let found = [];
  let marked = -1;
  let timer = 0;
  let asked = new AbortController();

  const mark = (/** @type {number} */ index) => {
    marked = index;
    for (const [position, option] of [...list.children].entries()) {
      option.setAttribute("aria-selected", String(position === marked));
      if (position === marked) option.scrollIntoView({ block: "nearest" });
    }
    input.setAttribute("aria-activedescendant", marked < 0 ? "" : `found-${marked}`);
  };
  const show = (/** @type {boolean} */ open) => {
    list.hidden = !open;
    input.setAttribute("aria-expanded", String(open));
  };
  const take = (/** @type {Dataset | undefined} */ dataset) => {
    if (!dataset) return;
    show(false);
    input.value = "";
    input.blur();
    choose(dataset);
  };
  const look = async () => {
    asked.abort();
    asked = new AbortController();
    const { signal } = asked;
    const text = input.value.trim();
    try {
      found = await find(text, signal);
    } catch (error) {
      if (!signal.aborted) report(error);
      return;
    }
    if (signal.aborted || document.activeElement !== input) return;
    list.replaceChildren(...found.map((dataset, index) => option(dataset, index, () => take(dataset))));
    if (found.length === 0) list.append(h("li", { class: "nothing" }, `No table or view is called like “${text}”.`));
    mark(found.length > 0 && text ? 0 : -1);
    show(true);
  };

  input.addEventListener("input", () => {
    found = [];
    clearTimeout(timer);
    timer = setTimeout(look, PAUSE);
  });
  input.addEventListener("focus", look);
  input.addEventListener("blur", () => show(false));
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (found.length > 0) mark((Math.max(marked, step > 0 ? -1 : 0) + step + found.length) % found.length);
    } else if (event.key === "Enter") {
      if (found.length > 0) take(found[marked]);
      else void look().then(() => take(found[marked]));
    } else if (event.key === "Escape") {
      input.blur();
    }
  });
}

/** @param {Dataset} dataset @param {number} index @param {() => void} take */
function option(dataset, index, take) {
  const node = nodeOf(dataset);
  return h(
    "li",
    {
      id: `found-${index}`,
      role: "option",
      "aria-selected": "false",
      mousedown: (/** @type {Event} */ e) => e.preventDefault(),
      click: take,
    },
    h("span", { class: `called ${node.kind}` }, icon(node.kind), called(dataset)),
    h("span", { class: "quiet" }, kindOf(node)),
  );
}
