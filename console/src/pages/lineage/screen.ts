// The graph on the page: what the address says is asked of the server and drawn; what is clicked becomes the address.
import { ApiError } from "../../api/client.ts";
import { formatAbsolute } from "../../parts/format.ts";
import { titleOf } from "../../parts/Notice.tsx";
import type { View } from "./address.ts";
import type { Deeds } from "./boxes.ts";
import { fullName } from "./boxes.ts";
import { draw, mark } from "./canvas.ts";
import { fillControls, listenToControls } from "./controls.ts";
import { byId } from "./elements.ts";
import { addressOf, type Answer, type Dataset, Lineage, type LineageNode } from "./graph.ts";
import { describe } from "./panel.ts";
import { listenToSearch } from "./search.ts";
import { fit, listenToSheet, show, zoomBy } from "./sheet.ts";
import { askGraph, findDatasets } from "./source.ts";
import { offerDatasets, showRefusal } from "./start.ts";

const ZOOM = 1.25;

/** What the page does for the graph: it takes another view as its address, and a name as its title. */
export interface Page {
  readonly go: (view: View) => void;
  readonly name: (title: string) => void;
}

export class Screen {
  #view: View;
  #answer: Answer | null = null;
  #lineage: Lineage | null = null;
  #asked = new AbortController();
  /** The box that shall stay where it is seen when the next view is drawn. */
  #keep: string | undefined;
  readonly #open = new AbortController();
  readonly #page: Page;
  readonly #deeds: Deeds = {
    center: (node, column) => {
      if (node.dataset) this.#go({ node: addressOf(node.dataset), column, selected: "", toggled: [] });
    },
    select: (id) => this.#go({ selected: id }),
    toggle: (id) => {
      const { toggled } = this.#view;
      this.#go({ toggled: toggled.includes(id) ? toggled.filter((each) => each !== id) : [...toggled, id] }, id);
    },
  };

  constructor(view: View, page: Page) {
    this.#view = view;
    this.#page = page;
    const { signal } = this.#open;
    byId("zoom-in", HTMLButtonElement).addEventListener("click", () => zoomBy(ZOOM), { signal });
    byId("zoom-out", HTMLButtonElement).addEventListener("click", () => zoomBy(1 / ZOOM), { signal });
    byId("zoom-fit", HTMLButtonElement).addEventListener("click", fit, { signal });
    listenToControls((changes) => this.#go(changes), signal);
    listenToSheet(signal);
    listenToSearch(
      (dataset) => this.#choose(dataset),
      (error) => this.#note(sentence(error), true),
      signal,
    );
    this.#listenToKeys(signal);
    fillControls(view);
    void this.#load();
  }

  close(): void {
    this.#open.abort();
    this.#asked.abort();
  }

  /** Show another view: ask anew, or draw anew what is known. */
  turn(view: View): void {
    const before = this.#view;
    const keep = this.#keep;
    this.#view = view;
    this.#keep = undefined;
    fillControls(view);
    const { selected: was, ...drawn } = before;
    const { selected, ...wanted } = view;
    if (this.#answer === null || questionOf(before) !== questionOf(view)) void this.#load();
    else if (JSON.stringify(drawn) !== JSON.stringify(wanted)) this.#render(this.#answer, keep);
    else if (was !== selected) this.#pick();
  }

  #go(changes: Partial<View>, keep: string | undefined = undefined): void {
    this.#keep = keep;
    this.#page.go({ ...this.#view, ...changes });
  }

  #choose(dataset: Dataset): void {
    this.#go({ node: addressOf(dataset), column: "", selected: "", toggled: [] });
  }

  async #load(): Promise<void> {
    this.#asked.abort();
    this.#asked = new AbortController();
    const { signal } = this.#asked;
    const canvas = byId("canvas", HTMLElement);
    canvas.setAttribute("aria-busy", "true");
    try {
      if (this.#view.node === "") await this.#begin(signal);
      else {
        const answer = await askGraph(this.#view, signal);
        if (signal.aborted) return;
        this.#answer = answer;
        this.#render(answer);
        show(answer.node);
      }
    } catch (error) {
      if (!signal.aborted) this.#fail(error);
    } finally {
      if (!signal.aborted) canvas.removeAttribute("aria-busy");
    }
  }

  async #begin(signal: AbortSignal): Promise<void> {
    const datasets = await findDatasets("", signal);
    if (signal.aborted) return;
    this.#clear();
    offerDatasets(datasets, (dataset) => this.#choose(dataset));
  }

  #render(known: Answer, keep: string = known.node): void {
    const lineage = new Lineage(known, this.#view.jobs);
    this.#lineage = lineage;
    byId("overlay", HTMLElement).hidden = false;
    byId("indirect", HTMLElement).hidden = lineage.column === null;
    draw(lineage, this.#opened(lineage), this.#deeds, keep);
    const center = lineage.byId.get(lineage.center);
    this.#page.name(center ? `${fullName(center)} · Lineage` : "Lineage");
    this.#note(this.#remark(lineage, center));
    this.#pick();
  }

  /** Mark and describe what was chosen; the centre, if that isn't there. */
  #pick(): void {
    const lineage = this.#lineage;
    if (!lineage) return;
    const { selected } = this.#view;
    const isThere = lineage.byId.has(selected) || lineage.flowsOf(selected).length > 0;
    mark(selected);
    describe(lineage, isThere ? selected : lineage.center, this.#deeds);
  }

  /** The boxes that show columns: those on the way of the column asked for, or all; but for those that were toggled. */
  #opened({ nodes, way }: Lineage): Set<string> {
    const { columns, toggled } = this.#view;
    const open = nodes.filter((node) => (columns || way.has(node.id)) !== toggled.includes(node.id));
    return new Set(open.map((node) => node.id));
  }

  /** What is to be said of the graph as a whole. */
  #remark({ truncated, count, flows }: Lineage, center: LineageNode | undefined): string {
    if (truncated) return `There is more than the ${count} shown here: take fewer steps, or one direction.`;
    if (flows.length > 0) return "";
    const name = center ? fullName(center) : "this";
    const where = {
      both: `Nothing is known that ${name} comes from or goes to`,
      upstream: `Nothing is known that ${name} comes from`,
      downstream: `Nothing is known that is made of ${name}`,
    };
    const then = this.#view.at
      ? ` as of ${formatAbsolute(new Date(this.#view.at))}. Empty “As of” for what is known now.`
      : ". Edges appear when an engine reads and writes through this catalog, or sends OpenLineage events to it.";
    return where[this.#view.direction] + then;
  }

  /** Say why there is no graph, in its place. */
  #fail(error: unknown): void {
    this.#clear();
    const when = this.#view.at ? `This is as of ${formatAbsolute(new Date(this.#view.at))}.` : "";
    const isMissing = error instanceof ApiError && error.status === 404;
    showRefusal({
      title: titleOf(error),
      sentences: [sentence(error), when],
      again: () => void this.#load(),
      others: isMissing ? () => this.#go({ node: "", column: "", at: "", selected: "", toggled: [] }) : undefined,
    });
  }

  #clear(): void {
    this.#answer = null;
    this.#page.name("Lineage");
    byId("panel", HTMLElement).hidden = true;
    byId("overlay", HTMLElement).hidden = true;
    this.#note("");
  }

  #note(text: string, isTrouble = false): void {
    const place = byId("note", HTMLElement);
    place.textContent = text;
    place.hidden = text === "";
    place.classList.toggle("failure", isTrouble);
  }

  /** The key / leads to this page's own search, which finds columns of other datasets, too. */
  #listenToKeys(signal: AbortSignal): void {
    const keys: Readonly<Record<string, () => void>> = {
      "/": () => byId("search", HTMLInputElement).focus(),
      "+": () => zoomBy(ZOOM),
      "-": () => zoomBy(1 / ZOOM),
      0: fit,
      Escape: () => (byId("panel", HTMLElement).hidden = true),
    };
    const press = (event: KeyboardEvent) => {
      const isTyping =
        event.target instanceof HTMLElement && event.target.closest("input, select, textarea, dialog, [role=dialog]");
      const act = keys[event.key];
      if (isTyping || !act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      act();
    };
    document.addEventListener("keydown", press, { signal });
  }
}

/** What of a view the server is asked for. */
function questionOf({ node, column, direction, depth, at }: View): string {
  return JSON.stringify([node, column, direction, depth, at]);
}

function sentence(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return /[.!?]$/.test(text) ? text : `${text}.`;
}
