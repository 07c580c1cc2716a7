// The field that finds tables: what is typed is looked for while it is typed, and one is chosen with keys or a click.
import { icon, kindOf } from "./boxes.ts";
import { byId, h } from "./elements.ts";
import { called, nodeOf } from "./graph.ts";
import { findDatasets } from "./source.ts";
import type { Dataset } from "./graph.ts";

const PAUSE = 150;

export function listenToSearch(
  choose: (chosen: Dataset) => void,
  report: (error: unknown) => void,
  closed: AbortSignal,
) {
  const input = byId("search", HTMLInputElement);
  const list = byId("found", HTMLUListElement);
  let found: Dataset[] = [];
  let marked = -1;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let asked = new AbortController();

  const mark = (index: number) => {
    marked = index;
    for (const [position, option] of [...list.children].entries()) {
      option.setAttribute("aria-selected", String(position === marked));
      if (position === marked) option.scrollIntoView({ block: "nearest" });
    }
    input.setAttribute("aria-activedescendant", marked < 0 ? "" : `found-${marked}`);
  };
  const show = (open: boolean) => {
    list.hidden = !open;
    input.setAttribute("aria-expanded", String(open));
  };
  const take = (dataset: Dataset | undefined) => {
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
      found = await findDatasets(text, signal);
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

  const type = () => {
    found = [];
    clearTimeout(timer);
    timer = setTimeout(look, PAUSE);
  };
  input.addEventListener("input", type, { signal: closed });
  input.addEventListener("focus", look, { signal: closed });
  input.addEventListener("blur", () => show(false), { signal: closed });
  const press = (event: KeyboardEvent) => {
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
  };
  input.addEventListener("keydown", press, { signal: closed });
}
function option(dataset: Dataset, index: number, take: () => void) {
  const node = nodeOf(dataset);
  return h(
    "li",
    {
      id: `found-${index}`,
      role: "option",
      "aria-selected": "false",
      mousedown: (e: Event) => e.preventDefault(),
      click: take,
    },
    h("span", { class: `called ${node.kind}` }, icon(node.kind), called(dataset)),
    h("span", { class: "quiet" }, kindOf(node)),
  );
}
