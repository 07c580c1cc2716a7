// What the server answers about lineage, as the page sees it: nodes, and links that hold the flows behind them.

export interface Run {
  id: string;
  state: string;
  started: string;
  ended?: string | null;
  engine?: string | null;
  application?: string | null;
  principal?: string | null;
  version?: string | null;
  inferred: boolean;
}

export interface ColumnFlow {
  "source-field": string;
  "target-field": string;
  type: string;
  subtype?: string | null;
  description?: string | null;
  inferred: boolean;
  confidence?: number | null;
}

export interface Job {
  namespace: string;
  name: string;
  type?: string | null;
  integration?: string | null;
}

export interface Flow {
  source: string;
  target: string;
  job?: Job | null;
  "first-seen": string;
  "last-seen": string;
  inferred: boolean;
  confidence?: number | null;
  runs: Run[];
  columns: ColumnFlow[];
}

export interface Field {
  name: string;
  type?: string;
  fields?: Field[];
}

export interface Dataset {
  id: string;
  name: string;
  kind: string;
  table?: { namespace: string[]; name: string } | null;
  namespace: string;
  location: string;
  dropped: boolean;
  state?: string | null;
  updated: string;
  columns?: string[] | null;
  fields: Field[];
}

export interface Answer {
  node: string;
  column?: string | null;
  truncated: boolean;
  nodes: Dataset[];
  edges: Flow[];
}

export type Kind = "table" | "view" | "dataset" | "job";
export interface LineageNode {
  id: string;
  kind: Kind;
  over: string;
  name: string;
  columns: { name: string; type: string }[];
  reached: Set<string>;
  dropped: boolean;
  dataset: Dataset | null;
  job: Job | null;
  loops: Flow[];
}

export interface LineageEdge {
  id: string;
  from: string;
  to: string;
  flows: Flow[];
  inferred: boolean;
}

export class Lineage {
  readonly center: string;
  readonly column: string | null;
  readonly truncated: boolean;
  readonly flows: Flow[];
  readonly byId: Map<string, LineageNode>;
  readonly links = new Map<string, LineageEdge>();
  /** The nodes that a column's way leads through; none, if no column was asked for. */
  readonly way: Set<string>;

  /** withJobs: whether jobs stand between what they read and what they write. */
  constructor(answer: Answer, withJobs: boolean) {
    this.center = answer.node;
    this.column = answer.column ?? null;
    this.truncated = answer.truncated;
    this.flows = answer.edges;
    this.byId = new Map(answer.nodes.map((dataset) => [dataset.id, nodeOf(dataset)]));
    this.way = new Set(answer.column ? answer.nodes.filter((each) => each.columns?.length).map((each) => each.id) : []);
    for (const flow of answer.edges) this.#add(flow, withJobs);
  }

  get nodes() {
    return [...this.byId.values()];
  }

  get edges() {
    return [...this.links.values()];
  }

  /** How many datasets there are. */
  get count() {
    return this.nodes.filter((node) => node.kind !== "job").length;
  }

  /** The flows behind a link, or between two datasets, by the id of either. */
  flowsOf(id: string) {
    return this.links.get(id)?.flows ?? this.flows.filter((flow) => pair(flow.source, flow.target) === id);
  }

  /** The flows that end at a dataset, or that begin there. */
  flowsAt(id: string, end: "source" | "target") {
    return this.flows.filter((flow) => flow[end] === id && flow.source !== flow.target);
  }
  linkedColumns(id: string) {
    const into = this.flowsAt(id, "target").flatMap((flow) => flow.columns.map((column) => column["target-field"]));
    const outOf = this.flowsAt(id, "source").flatMap((flow) => flow.columns.map((column) => column["source-field"]));
    const known = new Set(this.byId.get(id)?.columns.map((column) => column.name));
    return [...new Set([...into, ...outOf])].filter((name) => known.has(name));
  }
  #add(flow: Flow, withJobs: boolean) {
    if (flow.source === flow.target) {
      this.byId.get(flow.source)?.loops.push(flow);
    } else if (withJobs && flow.job && !isDefinition(flow)) {
      const id = `${flow.job.namespace} / ${flow.job.name}`;
      if (!this.byId.has(id)) this.byId.set(id, jobNode(id, flow.job));
      this.#link(flow.source, id, flow);
      this.#link(id, flow.target, flow);
    } else {
      this.#link(flow.source, flow.target, flow);
    }
  }
  #link(from: string, to: string, flow: Flow) {
    const id = pair(from, to);
    const link = this.links.get(id) ?? { id, from, to, flows: [], inferred: true };
    link.flows.push(flow);
    link.inferred &&= flow.inferred;
    this.links.set(id, link);
  }
}

/** The id of what goes from one node to another. */
export function pair(from: string, to: string) {
  return JSON.stringify([from, to]);
}

/** By what the server finds the dataset again: its name if that says all, else its id. */
export function addressOf(dataset: Dataset) {
  const levels = dataset.table ? [...dataset.table.namespace, dataset.table.name] : [];
  const plain = levels.length > 1 && levels.every((level) => /^[^.#\s]+$/.test(level)) && !dataset.dropped;
  return plain ? levels.join(".") : dataset.id;
}

/** What a dataset is called: where that is all there is, by what stores it and its name there. */
export function called(dataset: Dataset) {
  if (dataset.table) return [...dataset.table.namespace, dataset.table.name].join(".");
  return dataset.namespace.includes("://")
    ? `${dataset.namespace}/${dataset.name}`
    : `${dataset.namespace} ${dataset.name}`;
}

export function kindOfDataset(dataset: Dataset): Kind {
  if (!dataset.table) return "dataset";
  return dataset.kind === "VIEW" ? "view" : "table";
}

export function nodeOf(dataset: Dataset): LineageNode {
  const kind = kindOfDataset(dataset);
  const over = dataset.table ? dataset.table.namespace.join(".") : dataset.namespace;
  const name = dataset.table ? dataset.table.name : dataset.name;
  return {
    id: dataset.id,
    kind,
    over,
    name,
    columns: columnsOf(dataset),
    reached: new Set(dataset.columns ?? []),
    dropped: dataset.dropped,
    dataset,
    job: null,
    loops: [],
  };
}
function jobNode(id: string, job: Job): LineageNode {
  const over = job.integration ?? "";
  const nothing = {
    columns: [],
    reached: new Set<string>(),
    dropped: false,
    dataset: null,
    loops: [] as Flow[],
  };
  return { id, kind: "job", over, name: shortName(job), job, ...nothing };
}

/** Those of the schema, and where that isn't known those that something comes from or goes to. */
function columnsOf(dataset: Dataset) {
  const known = flat(dataset.fields);
  return known.length > 0 ? known : (dataset.columns ?? []).map((name) => ({ name, type: "" }));
}

/** Whether it is by what a view is defined as that it flows: the catalog itself says so, without a run. */
export function isDefinition(flow: Flow) {
  return !flow.job || (flow.job.integration === "DUCKICELAKE" && flow.runs.length === 0);
}

/** A job's name without what only tells it apart from others: its integration before and the hash behind. */
function shortName({ name, integration }: Job) {
  const bare = name.replace(/\.[0-9a-f]{8}$/, "");
  const prefix = `${integration}.`.toLowerCase();
  return bare.toLowerCase().startsWith(prefix) && bare.length > prefix.length ? bare.slice(prefix.length) : bare;
}

/** Columns and what is nested in them, by their paths.*/
function flat(fields: Field[], path = ""): { name: string; type: string }[] {
  return fields.flatMap(({ name, type, fields: nested }) => [
    { name: path + name, type: type ?? "" },
    ...flat(nested ?? [], `${path}${name}.`),
  ]);
}
