// The runs behind an edge: who did it when and with what, and on demand all that is known of one.
import { ask } from "./api.js";
import { h } from "./elements.js";
import { isDefinition } from "./graph.js";

/** @import { Child } from "./elements.js" */
/** @import { Flow, Job, Run } from "./graph.js" */

const STATES = /** @type {Record<string, string>} */ ({
  COMPLETE: "done",
  FAIL: "failed",
  ABORT: "given up",
  RUNNING: "running",
  START: "running",
});
const times = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** An instant in the reader's time zone. @param {string | null | undefined} instant */
export function time(instant) {
  return instant ? h("time", { datetime: instant, title: instant }, times.format(new Date(instant))) : null;
}

/** What one job did along an edge: its name, how sure the edge is, its latest runs. @param {Flow} flow */
export function flowSection(flow) {
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

/** The latest runs, the newest first. @param {Run[]} runs */
export function runList(runs) {
  return h("ul", { class: "runs", "aria-label": "Runs" }, ...runs.map((run) => h("li", {}, runDetails(run))));
}

/** How sure an inferred edge is. @param {number | null | undefined} confidence */
export function guessed(confidence) {
  const sure = typeof confidence !== "number" ? "" : `, ${Math.round(confidence * 100)} % sure`;
  return `Inferred${sure}: the same application read the one before it wrote the other. Nobody has said so.`;
}

function seen(/** @type {Flow} */ flow) {
  const [first, last] = [flow["first-seen"], flow["last-seen"]];
  if (!first || first === last) return last && h("p", { class: "quiet" }, "Seen ", time(last));
  return h("p", { class: "quiet" }, "First seen ", time(first), ", last ", time(last));
}

function aboutJob(/** @type {Job} */ job) {
  return [job.type?.toLowerCase(), job.integration?.toLowerCase(), `in ${job.namespace}`].filter(Boolean).join(" · ");
}

function runDetails(/** @type {Run} */ run) {
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

/** A list of terms and what they are, without those that aren't known. @param {Record<string, Child>} known */
export function facts(known) {
  const there = Object.entries(known).filter(([, value]) => Boolean(value));
  return h("dl", { class: "facts" }, ...there.flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]));
}

async function fill(/** @type {HTMLElement} */ more, /** @type {string} */ id) {
  more.replaceChildren(h("p", { class: "quiet" }, "Asking…"));
  try {
    const run = await ask(`lineage/v1/runs/${encodeURIComponent(id)}`);
    more.replaceChildren(...told(run));
  } catch (error) {
    more.replaceChildren(h("p", { class: "trouble" }, error instanceof Error ? error.message : String(error)));
  }
}

/** What the server tells of a run by itself, in parts. @param {any} run */
function told(run) {
  const sql = run.events.findLast((/** @type {any} */ event) => event.job?.facets?.sql)?.job.facets.sql.query;
  const failed = run.facets.errorMessage?.message;
  const all = h("pre", { tabindex: "0" }, JSON.stringify(run, null, 2));
  return [
    facts({ Read: ends(run.inputs), Wrote: ends(run.outputs), Parent: run.parent?.job?.name }),
    !run.complete && h("p", { class: "quiet" }, "It read or wrote what you may not see, so what it said is not shown."),
    failed && h("pre", { class: "trouble" }, failed),
    sql && h("pre", { class: "sql", tabindex: "0", "aria-label": "SQL" }, sql),
    h("details", {}, h("summary", {}, "All that is known"), all),
  ].filter((part) => part instanceof Node);
}

/** @param {{name: string, version?: string | null}[]} datasets */
function ends(datasets) {
  return datasets.map(({ name, version }) => (version ? `${name} at ${version}` : name)).join(", ");
}
