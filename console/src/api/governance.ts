// What the pages of grants and policies ask of a warehouse.
import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { type Caller, PAGED, PAGE_SIZE } from "./administration.ts";
import { apiNamespace } from "./address.ts";
import { type Answer, get } from "./client.ts";
import type { TableMetadata } from "./iceberg.ts";
import { type GovernedObject, listAbove, writeObject } from "./objects.ts";

export type Grant = Answer<"/management/v1/grants", "get">["grants"][number];
export type Decision = Answer<"/management/v1/decision", "get">;
export type Policy = Answer<"/management/v1/policies", "get">["policies"][number];
export type ColumnTag = Answer<"/management/v1/column-tags", "get">["tags"][number];

export const PRIVILEGES = [
  "select",
  "insert",
  "update",
  "delete",
  "create",
  "drop",
  "alter",
  "manage-grants",
  "ownership",
] as const;

export const grantsQuery = (warehouse: string) =>
  infiniteQueryOptions({
    queryKey: [warehouse, "grants"],
    queryFn: ({ signal, pageParam }) =>
      get("/management/v1/grants", { warehouse, query: { pageSize: PAGE_SIZE, pageToken: pageParam }, signal }),
    ...PAGED,
  });

/** A grant that counts for what was asked, with the way by which it does. */
export interface FoundGrant extends Grant {
  /** From the principal to the group or role that was granted it. */
  readonly path: readonly string[];
  /** Whether it is on something above the object. */
  readonly isFromAbove: boolean;
}

const MOST_CONTAINERS = 200;

/** The ways from a principal to the groups and roles that it is in; itself first. */
async function findPaths(name: string, caller: Caller, signal: AbortSignal): Promise<readonly (readonly string[])[]> {
  if (!caller["is-admin"]) {
    const held = name === caller.principal ? [...caller.groups, ...caller.roles] : [];
    return [[name], ...held.map((one) => [name, one])];
  }
  const paths = new Map<string, readonly string[]>([[name, [name]]]);
  for (const [at, path] of paths) {
    if (paths.size > MOST_CONTAINERS) break;
    const found = await get("/management/v1/principals/{principal}", { path: { principal: at }, signal });
    for (const container of found.containers) if (!paths.has(container)) paths.set(container, [...path, container]);
  }
  return [...paths.values()];
}

/** Grants that a principal has, and those that hold for an object: inherited ones, too. */
export const foundGrantsQuery = (
  warehouse: string,
  caller: Caller | undefined,
  { principal, object }: { principal: string | undefined; object: GovernedObject | null },
) =>
  queryOptions({
    queryKey: [warehouse, "grants", principal ?? "", object ? writeObject(object) : "", caller?.principal],
    queryFn: async ({ signal }): Promise<readonly FoundGrant[]> => {
      const paths = principal && caller ? await findPaths(principal, caller, signal) : [null];
      const objects = object ? listAbove(object) : [null];
      const asked = paths.flatMap((path) => objects.map((on) => ({ path, on })));
      const answers = await Promise.all(
        asked.map(async ({ path, on }) => {
          const query = {
            ...(path ? { principal: path.at(-1) ?? "" } : {}),
            ...(on ? { on: writeObject(on) } : {}),
          };
          const { grants } = await get("/management/v1/grants", { warehouse, query, signal });
          const isFromAbove = on !== null && on !== object;
          return grants.map((grant) => ({ ...grant, path: path ?? [grant.principal], isFromAbove }));
        }),
      );
      return answers.flat();
    },
    enabled: caller !== undefined,
    retry: false,
  });

export interface Question {
  readonly principal: string;
  readonly action: string;
  readonly on: string;
}

export const decisionQuery = (warehouse: string, question: Question) =>
  queryOptions({
    queryKey: [warehouse, "decision", question],
    queryFn: ({ signal }) => get("/management/v1/decision", { warehouse, query: { ...question }, signal }),
    enabled: question.principal !== "",
    retry: false,
    staleTime: 0,
  });

/** The names of a table's columns; none if the caller may not look at them. */
export const columnsQuery = (warehouse: string, table: GovernedObject | null) =>
  queryOptions({
    queryKey: [warehouse, "columns", table && writeObject(table)],
    queryFn: async ({ signal }): Promise<readonly string[]> => {
      const path = { namespace: apiNamespace(table?.namespace ?? []), table: table?.name ?? "" };
      const place = { warehouse, path, signal };
      const { actions } = await get("/v1/namespaces/{namespace}/tables/{table}/actions", place);
      if (!actions.includes("select")) return [];
      const { metadata } = (await get("/v1/namespaces/{namespace}/tables/{table}", place)) as {
        metadata: TableMetadata;
      };
      const schema = metadata.schemas.find((one) => one["schema-id"] === metadata["current-schema-id"]);
      return (schema?.fields ?? []).map(({ name }) => name);
    },
    enabled: table?.kind === "table",
    retry: false,
  });

export const policiesQuery = (warehouse: string, on: string | undefined) =>
  infiniteQueryOptions({
    queryKey: [warehouse, "policies", on ?? ""],
    queryFn: ({ signal, pageParam }) =>
      get("/management/v1/policies", {
        warehouse,
        query: { pageSize: PAGE_SIZE, pageToken: pageParam, ...(on ? { on } : {}) },
        signal,
      }),
    ...PAGED,
    retry: false,
  });

export const columnTagsQuery = (warehouse: string, on: string | undefined) =>
  infiniteQueryOptions({
    queryKey: [warehouse, "column tags", on ?? ""],
    queryFn: ({ signal, pageParam }) =>
      get("/management/v1/column-tags", {
        warehouse,
        query: { pageSize: PAGE_SIZE, pageToken: pageParam, ...(on ? { on } : {}) },
        signal,
      }),
    ...PAGED,
    retry: false,
  });
