// The runs behind an edge: who did it when and with what, and on demand all that is known of one.
import { formatAbsolute } from "../../parts/format.ts";
import { h } from "./elements.ts";
import { isDefinition } from "./graph.ts";
import { askRun } from "./source.ts";
import type { Child } from "./elements.ts";
import type { Flow, Job, Run } from "./graph.ts";

const STATES: Readonly<Record<string, string>> = {
  COMPLETE: "done",
  FAIL: "failed",
  ABORT: "given up",
  RUNNING: "running",
  START: "running",
};

/** An instant in the reader's time zone. */
export function time(instant: string | null | undefined) {
  return instant ? h("time", { datetime: instant, title: instant }, formatAbsolute(new Date(instant))) : null;
}

/** What one job did along an edge: its name, how sure the edge is, its latest runs. */
export function flowSection(flow: Flow) {
  return h(
    "section",
    { class: "flow" },
    h("h3", {}, isDefinition(flow) ? "Definition of the view" : flow.job?.name),
    flow.job && !isDefinition(flow) && h("p", { class: "quiet" }, aboutJob(flow.job)),
    flow.inferred && h("p", { class: "guess" }, guessed(flow.confidence)),
    seen(flow),
    runList(flow.runs),
  );
}

/** The latest runs, the newest first. */
export function runList(runs: Run[]) {
  return h("ul", { class: "runs", "aria-label": "Runs" }, ...runs.map((run) => h("li", {}, runDetails(run))));
}

/** How sure an inferred edge is. */
export function guessed(confidence: number | null | undefined) {
  const sure = typeof confidence !== "number" ? "" : `, ${Math.round(confidence * 100)} % sure`;
  return `Inferred${sure}: the same application read the one before it wrote the other. No event says so.`;
}

function seen(flow: Flow) {
  const [first, last] = [flow["first-seen"], flow["last-seen"]];
  if (!first || first === last) return last && h("p", { class: "quiet" }, "Seen ", time(last));
  return h("p", { class: "quiet" }, "First seen ", time(first), ", last ", time(last));
}

function aboutJob(job: Job) {
  return [job.type?.toLowerCase(), job.integration?.toLowerCase(), `in ${job.namespace}`].filter(Boolean).join(" · ");
}

function runDetails(run: Run) {
  const state = run.state.toUpperCase();
  const more = h("div", { class: "more" });
  const details = h(
    "details",
    { class: `run ${state.toLowerCase()}` },
    h(
      "summary",
      {},
      h("span", { class: "state" }, STATES[state] ?? state.toLowerCase()),
      " ",
      time(run.ended ?? run.started),
      h(
        "span",
        { class: "quiet by" },
        [run.engine, run.principal && `by ${run.principal}`, run.inferred && "inferred"].filter(Boolean).join(", "),
      ),
    ),
    facts({
      Started: time(run.started),
      Ended: time(run.ended),
      Engine: run.engine,
      Application: run.application,
      Who: run.principal,
      Snapshot: run.version,
      Run: run.id,
    }),
    more,
  );
  details.addEventListener("toggle", () => void fill(more, run.id), { once: true });
  return details;
}

/** A list of terms and what they are, without those that aren't known. */
export function facts(known: Record<string, Child>) {
  const there = Object.entries(known).filter(([, value]) => Boolean(value));
  return h("dl", { class: "fact-list" }, ...there.flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]));
}

async function fill(more: HTMLElement, id: string) {
  more.replaceChildren(h("p", { class: "quiet" }, "Asking…"));
  try {
    const run = await askRun(id);
    more.replaceChildren(...describeRun(run));
  } catch (error) {
    more.replaceChildren(h("p", { class: "failure" }, error instanceof Error ? error.message : String(error)));
  }
}

/** What the server answers about a run. */
export interface RunAnswer {
  readonly complete: boolean;
  readonly inputs: readonly NamedVersion[];
  readonly outputs: readonly NamedVersion[];
  readonly parent?: { readonly job?: { readonly name?: string } } | null;
  readonly facets: { readonly errorMessage?: { readonly message?: string } };
  readonly events: readonly { readonly job?: { readonly facets?: { readonly sql?: { readonly query?: string } } } }[];
}

interface NamedVersion {
  readonly name: string;
  readonly version?: string | null;
}

/** What the server says of a run by itself, in parts. */
function describeRun(run: RunAnswer): Node[] {
  const sql = run.events.findLast((event) => event.job?.facets?.sql)?.job?.facets?.sql?.query;
  const failed = run.facets.errorMessage?.message;
  const all = h("pre", { tabindex: "0" }, JSON.stringify(run, null, 2));
  return [
    facts({ Read: ends(run.inputs), Wrote: ends(run.outputs), Parent: run.parent?.job?.name }),
    !run.complete && h("p", { class: "quiet" }, "It read or wrote what you may not see, so what it said is not shown."),
    failed && h("pre", { class: "failure" }, failed),
    sql && h("pre", { class: "run-sql", tabindex: "0", "aria-label": "SQL" }, sql),
    h("details", {}, h("summary", {}, "All that is known"), all),
  ].filter((part) => part instanceof Node);
}

function ends(datasets: readonly NamedVersion[]) {
  return datasets.map(({ name, version }) => (version ? `${name} at ${version}` : name)).join(", ");
}
