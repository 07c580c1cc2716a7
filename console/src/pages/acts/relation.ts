// What acts on tables, views and namespaces share: where they are for the API, for commands and for pages.
import type { useNavigate } from "@tanstack/react-router";
import { apiNamespace, joinIdentifier, joinName } from "../../api/address.ts";
import type { Changed, Request } from "../../parts/Act.tsx";
import { commandName, writeCommand } from "../../parts/command.ts";

export interface Relation {
  readonly warehouse: string;
  readonly kind: "table" | "view" | "namespace";
  readonly levels: readonly string[];
}

export interface RelationActProps {
  readonly of: Relation;
  readonly close: () => void;
}

export function lastLevel({ levels }: Relation): string {
  return levels.at(-1) ?? "";
}

/** A request to the relation itself. */
export function requestOf({ warehouse, kind, levels }: Relation, method: Request["method"], body?: unknown): Request {
  const above = levels.slice(0, -1);
  const name = levels.at(-1) ?? "";
  const rest = { method, warehouse, ...(body === undefined ? {} : { body }) };
  if (kind === "namespace") {
    return { ...rest, path: "/v1/namespaces/{namespace}", values: { namespace: apiNamespace(levels) } };
  }
  const values = { namespace: apiNamespace(above), [kind]: name };
  return { ...rest, path: `/v1/namespaces/{namespace}/${kind}s/{${kind}}` as Request["path"], values };
}

/** The command of a verb on the relation. */
export function commandOf(
  { warehouse, levels }: Relation,
  verb: string,
  given: readonly string[] = [],
  options: Parameters<typeof writeCommand>[3] = {},
): string {
  return writeCommand(verb, warehouse, [commandName(levels), ...given], options);
}

export function historyOf({ kind, levels }: Relation): Changed {
  if (kind === "namespace") return { namespace: levels };
  return { namespace: levels.slice(0, -1), [kind]: levels.at(-1) ?? "" };
}

/** Sets and removes properties. Tables and views take it as a commit. */
export function propertiesRequest(
  of: Relation,
  updates: Readonly<Record<string, string>>,
  removals: readonly string[],
  uuid?: string,
): Request {
  if (of.kind === "namespace") {
    const request = requestOf(of, "POST", { updates, removals });
    return { ...request, path: "/v1/namespaces/{namespace}/properties" };
  }
  const requirements = uuid ? [{ type: `assert-${of.kind}-uuid`, uuid }] : [];
  const changes = [
    ...(Object.keys(updates).length > 0 ? [{ action: "set-properties", updates }] : []),
    ...(removals.length > 0 ? [{ action: "remove-properties", removals }] : []),
  ];
  return requestOf(of, "POST", { requirements, updates: changes });
}

/** Leads to the page of a relation, or of the namespace that it is in. */
export function openRelation(navigate: ReturnType<typeof useNavigate>, { warehouse, kind, levels }: Relation): void {
  const identifier = joinIdentifier({ namespace: levels.slice(0, -1), name: levels.at(-1) ?? "" });
  if (kind === "table") void navigate({ to: "/w/$warehouse/tables/$table", params: { warehouse, table: identifier } });
  else if (kind === "view") void navigate({ to: "/w/$warehouse/views/$view", params: { warehouse, view: identifier } });
  else {
    const search = levels.length > 0 ? { in: joinName(levels) } : {};
    void navigate({ to: "/w/$warehouse/tables", params: { warehouse }, search });
  }
}
