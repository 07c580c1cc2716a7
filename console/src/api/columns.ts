// Columns while they are edited: a tree that becomes a schema, and clauses of `duckicelake alter` that do the same.
import { quoteColumn, quoteText } from "./address.ts";
import { type Field, fieldsWithin, type IcebergType, nameType, type Schema } from "./iceberg.ts";
import { parseType, TypeTextError } from "./types.ts";

export interface ColumnNode {
  readonly key: string;
  /** Null: it is new. */
  readonly id: number | null;
  readonly name: string;
  readonly kind: "plain" | "struct" | "list" | "map";
  /** As text, where it is plain or new. */
  readonly type: string;
  readonly isRequired: boolean;
  readonly doc: string;
  /** Of a new one: its value in rows that have none. */
  readonly standard: string;
  readonly isGone: boolean;
  /** The element of a list, or a key or value of a map: neither renamed nor removed. */
  readonly isFixed: boolean;
  readonly children: readonly ColumnNode[];
}

type Nodes = readonly ColumnNode[];

export function nodesOf(fields: readonly Field[], isFixed = false): Nodes {
  return fields.map((field) => ({
    key: `id${field.id}`,
    id: field.id,
    name: field.name,
    kind: typeof field.type === "string" ? "plain" : field.type.type,
    type: typeof field.type === "string" ? field.type : "",
    isRequired: field.required,
    doc: field.doc ?? "",
    standard: "",
    isGone: false,
    isFixed,
    children: nodesOf(fieldsWithin(field.type), typeof field.type !== "string" && field.type.type !== "struct"),
  }));
}

let made = 0;

export function newNode(name = "", type = ""): ColumnNode {
  const rest = { isRequired: false, doc: "", standard: "", isGone: false, isFixed: false, children: [] };
  return { key: `new${++made}`, id: null, name, kind: "plain", type, ...rest };
}

/** The tree with a node, found by its key, replaced by what `change` makes of it. */
export function changeNode(nodes: Nodes, key: string, change: (node: ColumnNode) => ColumnNode): Nodes {
  return nodes.map((node) =>
    node.key === key ? change(node) : { ...node, children: changeNode(node.children, key, change) },
  );
}

export function removeNode(nodes: Nodes, key: string): Nodes {
  return nodes
    .filter((node) => node.key !== key)
    .map((node) => ({ ...node, children: removeNode(node.children, key) }));
}

export function moveNode(nodes: Nodes, key: string, by: -1 | 1): Nodes {
  const at = nodes.findIndex((node) => node.key === key);
  const other = nodes[at + by];
  const moved = nodes[at];
  if (at < 0) return nodes.map((node) => ({ ...node, children: moveNode(node.children, key, by) }));
  if (!other || !moved) return nodes;
  const next = [...nodes];
  next[at] = other;
  next[at + by] = moved;
  return next;
}

/** What was edited of a schema, on another one that took its place: by the ids of columns. */
export function rebaseNodes(edited: Nodes, before: Nodes, now: Nodes): Nodes {
  const known = new Map(edited.filter(({ id }) => id !== null).map((node) => [node.id, node]));
  const bases = new Map(before.map((node) => [node.id, node]));
  const kept = now.map((node) => {
    const mine = known.get(node.id);
    const base = bases.get(node.id);
    if (!mine || !base) return node;
    const pick = <K extends keyof ColumnNode>(name: K): ColumnNode[K] =>
      mine[name] === base[name] ? node[name] : mine[name];
    const children = rebaseNodes(mine.children, base.children, node.children);
    const own = { name: pick("name"), type: pick("type"), doc: pick("doc"), isRequired: pick("isRequired") };
    return { ...node, ...own, isGone: mine.isGone, children };
  });
  return [...kept, ...edited.filter(({ id }) => id === null)];
}

/** What is wrong with names and types, by the keys of columns. */
export function findTroubles(nodes: Nodes, base: Nodes = []): ReadonlyMap<string, string> {
  const troubles = new Map<string, string>();
  const here = nodes.filter(({ isGone }) => !isGone);
  for (const node of here) {
    const found = findTrouble(node, here, base);
    if (found) troubles.set(node.key, found);
    const before = base.find(({ id }) => id !== null && id === node.id)?.children;
    for (const [key, trouble] of findTroubles(node.children, before)) troubles.set(key, trouble);
  }
  return troubles;
}

function findTrouble(node: ColumnNode, siblings: Nodes, base: Nodes): string | null {
  if (!node.name.trim()) return "It needs a name";
  if (siblings.some(({ name, key }) => key !== node.key && name === node.name)) return "Two columns have this name";
  const holder = base.find(({ name, id }) => name === node.name && id !== node.id);
  if (holder && node.id !== null && siblings.some(({ id }) => id === holder.id)) {
    return "Another column has this name until it is renamed: take two steps";
  }
  if (node.kind !== "plain") return null;
  try {
    parseType(node.type, () => 0);
  } catch (error) {
    if (error instanceof TypeTextError) return error.message;
    throw error;
  }
  return null;
}

export interface BuiltSchema {
  readonly schema: { readonly type: "struct"; readonly fields: readonly Field[]; readonly "schema-id": number };
  readonly lastId: number;
  /** The ids of columns by their keys, new ones included. */
  readonly ids: ReadonlyMap<string, number>;
}

/** The schema that the tree says. base: what it was made of, whose defaults and keys stay. */
export function buildSchema(nodes: Nodes, base: Schema | null = null, lastId = 0): BuiltSchema {
  const ids = new Map<string, number>();
  let last = lastId;
  const take = () => ++last;
  const known = new Map<number, Field>();
  const note = (fields: readonly Field[]) => {
    for (const field of fields) {
      known.set(field.id, field);
      note(fieldsWithin(field.type));
    }
  };
  note(base?.fields ?? []);
  const build = (node: ColumnNode): Field => {
    const before = node.id === null ? undefined : known.get(node.id);
    const id = node.id ?? take();
    ids.set(node.key, id);
    const { doc: _, ...rest } = before ?? { id, required: false, name: "", type: "" };
    const type = typeAfter(node, before?.type, build, take);
    const standard = node.standard ? readStandard(node.standard, type) : undefined;
    return {
      ...rest,
      id,
      name: node.name,
      type,
      required: node.isRequired,
      ...(node.doc ? { doc: node.doc } : {}),
      ...(standard === undefined ? {} : { "initial-default": standard, "write-default": standard }),
    };
  };
  const fields = nodes.filter(({ isGone }) => !isGone).map(build);
  const keys = (base?.["identifier-field-ids"] ?? []).filter((id) => holds(fields, id));
  const schema = {
    type: "struct" as const,
    "schema-id": base?.["schema-id"] ?? 0,
    fields,
    ...(keys.length > 0 ? { "identifier-field-ids": keys } : {}),
  };
  return { schema, lastId: last, ids };
}

function holds(fields: readonly Field[], id: number): boolean {
  return fields.some((field) => field.id === id || holds(fieldsWithin(field.type), id));
}

function typeAfter(
  node: ColumnNode,
  before: IcebergType | undefined,
  build: (node: ColumnNode) => Field,
  take: () => number,
): IcebergType {
  if (before === undefined || typeof before === "string") {
    return before !== undefined && before === node.type ? before : parseType(node.type, take);
  }
  const children = node.children.filter(({ isGone }) => !isGone).map(build);
  if (before.type === "struct") return { ...before, fields: children };
  const [first, second] = children;
  if (before.type === "list") return { ...before, element: first?.type ?? before.element };
  return { ...before, key: first?.type ?? before.key, value: second?.type ?? before.value };
}

const NUMBER = /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/;

/** A default as Iceberg writes values of the type in JSON. */
function readStandard(text: string, type: IcebergType): unknown {
  const name = nameType(type);
  if (name === "boolean" && /^(true|false)$/i.test(text)) return text.toLowerCase() === "true";
  if (/^(int|long|float|double)$/.test(name) && NUMBER.test(text)) return Number(text);
  return text;
}

function writeStandard(text: string, type: string): string {
  const isBare =
    (type === "boolean" && /^(true|false)$/i.test(text)) ||
    (/^(int|long|float|double|decimal)/.test(type) && NUMBER.test(text));
  return isBare ? text : quoteText(text);
}

/** What follows a column's name. */
function describe(node: ColumnNode): string {
  const parts = [writeType(parseType(node.type, () => 0))];
  if (node.isRequired) parts.push("not null");
  if (node.standard) parts.push(`default ${writeStandard(node.standard, node.type)}`);
  if (node.doc) parts.push(`comment ${quoteText(node.doc)}`);
  return parts.join(" ");
}

/** A type as commands read it: names of fields are quoted where they must be. */
export function writeType(type: IcebergType): string {
  if (typeof type === "string") return type;
  if (type.type === "list") return `list<${writeType(type.element)}>`;
  if (type.type === "map") return `map<${writeType(type.key)}, ${writeType(type.value)}>`;
  const fields = type.fields.map(
    (field) => `${quoteColumn([field.name])}: ${writeType(field.type)}${field.required ? " not null" : ""}`,
  );
  return `struct<${fields.join(", ")}>`;
}

/** The columns as `duckicelake create table` takes them. */
export function writeColumns(nodes: Nodes): string {
  return nodes.map((node) => `${quoteColumn([node.name])} ${describe(node)}`).join(", ");
}

/** The clauses that make the tree of what it was before. Those of a level come before its parent's new name. */
export function writeClauses(nodes: Nodes, base: Nodes, parent: readonly string[] = []): readonly string[] {
  const at = (name: string) => quoteColumn([...parent, name]);
  const clauses: string[] = [];
  for (const node of nodes) {
    const before = base.find(({ id }) => id === node.id);
    if (!before) continue;
    if (node.isGone) clauses.push(`drop column ${at(before.name)}`);
    else clauses.push(...writeChanges(node, before, parent));
  }
  const order = base
    .map(({ id }) => nodes.find((node) => node.id === id))
    .flatMap((node) => (node && !node.isGone ? [node.key] : []));
  const wanted = nodes.filter(({ isGone }) => !isGone);
  wanted.forEach((node, place) => {
    const above = wanted[place - 1];
    const where = above ? `after ${quoteColumn([above.name])}` : "first";
    if (node.id === null) {
      clauses.push(`add column ${at(node.name)} ${describe(node)}${place === order.length ? "" : ` ${where}`}`);
    } else if (order[place] !== node.key) {
      order.splice(order.indexOf(node.key), 1);
      clauses.push(`alter column ${at(node.name)} ${where}`);
    } else {
      return;
    }
    order.splice(place, 0, node.key);
  });
  return clauses;
}

function writeChanges(node: ColumnNode, before: ColumnNode, parent: readonly string[]): readonly string[] {
  const at = quoteColumn([...parent, before.name]);
  const clauses = [...writeClauses(node.children, before.children, [...parent, before.name])];
  if (node.type !== before.type) clauses.push(`alter column ${at} type ${writeType(parseType(node.type, () => 0))}`);
  if (node.doc !== before.doc) clauses.push(`alter column ${at} comment ${quoteText(node.doc)}`);
  if (before.isRequired && !node.isRequired) clauses.push(`alter column ${at} drop not null`);
  if (node.name !== before.name) clauses.push(`rename column ${at} to ${quoteColumn([node.name])}`);
  return clauses;
}

/** All columns with their paths, as lists to choose from have them. */
export function listPaths(nodes: Nodes, parent: readonly string[] = []): readonly (readonly [string, string[]])[] {
  return nodes
    .filter(({ isGone }) => !isGone)
    .flatMap((node) => {
      const path = [...parent, node.name];
      const within = node.kind === "struct" ? listPaths(node.children, path) : [];
      return node.kind === "plain" ? [[node.key, path] as const] : within;
    });
}
