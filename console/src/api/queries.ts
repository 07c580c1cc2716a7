// What pages ask, each with the key under which the answer is kept.
import { infiniteQueryOptions, keepPreviousData, type QueryClient, queryOptions } from "@tanstack/react-query";
import { apiNamespace, FIRST_WAREHOUSE, type Identifier } from "./address.ts";
import { type Answer, get, post, UnknownAnswerError } from "./client.ts";
import type { LongId, PlannedFile, Snapshot, TableMetadata, ViewMetadata } from "./iceberg.ts";
import { putBefore } from "./pages.ts";

/** A list begins with a page that comes at once; whoever scrolls on gets larger ones. */
const pageSize = (pageToken: string) => (pageToken === "" ? 200 : 1000);

export const callerQuery = (warehouse: string) =>
  queryOptions({
    queryKey: [warehouse, "caller"],
    queryFn: async ({ signal }) => {
      const caller = await get("/v1/whoami", { warehouse, signal });
      // The frame around all pages is made of it: it must not fail where another server answers.
      if (!Array.isArray(caller.actions) || !Array.isArray(caller.scopes)) throw new UnknownAnswerError(200, null);
      return caller;
    },
    staleTime: 60_000,
  });

export const readinessQuery = () =>
  queryOptions({
    queryKey: ["readiness"],
    queryFn: ({ signal }) => get("/readyz", { signal }),
    refetchInterval: 30_000,
  });

/** Asked only for those who may know it. */
export const warehousesQuery = (isAdmin: boolean) =>
  queryOptions({
    queryKey: [FIRST_WAREHOUSE, "warehouses"],
    queryFn: ({ signal }) => get("/management/v1/warehouses", { signal }),
    enabled: isAdmin,
    staleTime: 60_000,
  });

export const namespacesQuery = (warehouse: string, parent: readonly string[]) =>
  infiniteQueryOptions({
    queryKey: [warehouse, "namespaces", parent],
    queryFn: ({ signal, pageParam }) =>
      get("/v1/namespaces", {
        warehouse,
        query: {
          pageSize: pageSize(pageParam),
          pageToken: pageParam,
          ...(parent.length > 0 ? { parent: apiNamespace(parent) } : {}),
        },
        signal,
      }),
    initialPageParam: "",
    getNextPageParam: (page) => page["next-page-token"],
  });

export const namespaceQuery = (warehouse: string, namespace: readonly string[]) =>
  queryOptions({
    queryKey: [warehouse, "namespace", namespace],
    queryFn: ({ signal }) =>
      get("/v1/namespaces/{namespace}", { warehouse, path: { namespace: apiNamespace(namespace) }, signal }),
  });

const listQuery = (warehouse: string, namespace: readonly string[], kind: "tables" | "views") =>
  infiniteQueryOptions({
    queryKey: [warehouse, kind, namespace],
    queryFn: ({ signal, pageParam }) =>
      get(`/v1/namespaces/{namespace}/${kind}`, {
        warehouse,
        path: { namespace: apiNamespace(namespace) },
        query: { pageSize: pageSize(pageParam), pageToken: pageParam },
        signal,
      }),
    initialPageParam: "",
    getNextPageParam: (page) => page["next-page-token"],
  });

export const tablesQuery = (warehouse: string, namespace: readonly string[]) =>
  listQuery(warehouse, namespace, "tables");

export const viewsQuery = (warehouse: string, namespace: readonly string[]) => listQuery(warehouse, namespace, "views");

const pathOf = ({ namespace, name }: Identifier) => ({ namespace: apiNamespace(namespace), table: name });

const SNAPSHOTS_EACH = 500;

/** A table's metadata with its newest snapshots and those that branches and tags name; tables may have very many. */
export const tableQuery = (warehouse: string, table: Identifier) =>
  queryOptions({
    queryKey: [warehouse, "table", table],
    queryFn: async ({ signal }) => {
      const asked = { warehouse, path: pathOf(table), signal };
      const [loaded, newest] = await Promise.all([
        get("/v1/namespaces/{namespace}/tables/{table}", { ...asked, query: { snapshots: "brief" } }),
        get("/v1/namespaces/{namespace}/tables/{table}/snapshots", { ...asked, query: { limit: SNAPSHOTS_EACH } }),
      ]);
      const { metadata } = loaded as { metadata: TableMetadata };
      const snapshots = newest.snapshots as unknown as readonly Snapshot[];
      const listed = new Set(snapshots.map((one) => String(one["snapshot-id"])));
      const named = (metadata.snapshots ?? []).filter((one) => !listed.has(String(one["snapshot-id"])));
      return { ...metadata, snapshots: [...snapshots, ...named], snapshotCount: newest.total };
    },
  });

/** What a table shows that is a materialized view, and how fresh it is. */
export const materializedViewQuery = (warehouse: string, table: Identifier) =>
  queryOptions({
    queryKey: [warehouse, "table", table, "materialized-view"],
    queryFn: ({ signal }) =>
      get("/v1/namespaces/{namespace}/materialized-views/{table}", { warehouse, path: pathOf(table), signal }),
  });

export type LoadedFile = Answer<"/pipeline/v1/namespaces/{namespace}/tables/{table}/files", "get">["files"][number];

/** The files that a watched folder brought, the last ones first. state: empty for all. */
export const loadedFilesQuery = (warehouse: string, table: Identifier, state: "" | "loaded" | "loading" | "failed") =>
  infiniteQueryOptions({
    queryKey: [warehouse, "loaded files", table, state],
    queryFn: ({ signal, pageParam }) =>
      get("/pipeline/v1/namespaces/{namespace}/tables/{table}/files", {
        warehouse,
        path: pathOf(table),
        query: { pageSize: pageSize(pageParam), pageToken: pageParam, ...(state ? { state } : {}) },
        signal,
      }),
    initialPageParam: "",
    getNextPageParam: (page) => page["next-page-token"],
  });

/** All snapshots of a table, newest first, page by page. */
export const snapshotsQuery = (warehouse: string, table: Identifier) =>
  infiniteQueryOptions({
    queryKey: [warehouse, "snapshots", table],
    queryFn: ({ signal, pageParam }) =>
      get("/v1/namespaces/{namespace}/tables/{table}/snapshots", {
        warehouse,
        path: pathOf(table),
        query: { limit: SNAPSHOTS_EACH, ...(pageParam === null ? {} : { before: pageParam as never }) },
        signal,
      }),
    initialPageParam: null as LongId | null,
    getNextPageParam: (page) => page["next-before"],
  });

export const viewQuery = (warehouse: string, { namespace, name }: Identifier) =>
  queryOptions({
    queryKey: [warehouse, "view", namespace, name],
    queryFn: async ({ signal }) => {
      const loaded = await get("/v1/namespaces/{namespace}/views/{view}", {
        warehouse,
        path: { namespace: apiNamespace(namespace), view: name },
        signal,
      });
      return (loaded as { metadata: ViewMetadata }).metadata;
    },
  });

export const statisticsQuery = (warehouse: string, table: Identifier) =>
  queryOptions({
    queryKey: [warehouse, "statistics", table],
    queryFn: async ({ signal }) => {
      const query = { namespace: apiNamespace(table.namespace), table: table.name };
      return (await get("/pipeline/v1/tables", { warehouse, query, signal })).tables[0] ?? null;
    },
    retry: false,
  });

export const comparisonQuery = (warehouse: string, table: Identifier, from: string, to: string) =>
  queryOptions({
    queryKey: [warehouse, "comparison", table, from, to],
    queryFn: ({ signal }) =>
      get("/v1/namespaces/{namespace}/tables/{table}/diff", {
        warehouse,
        path: pathOf(table),
        query: { from, to, limit: 100 },
        signal,
      }),
    retry: false,
  });

/** What a filter would read; an empty one reads all. */
export const scanQuery = (warehouse: string, table: Identifier, where: string) =>
  queryOptions({
    queryKey: [warehouse, "scan", table, where],
    queryFn: ({ signal }) =>
      post("/v1/namespaces/{namespace}/tables/{table}/explain", {
        warehouse,
        path: pathOf(table),
        body: where.trim() ? { where } : {},
        signal,
      }),
    placeholderData: keepPreviousData,
    retry: false,
  });

interface ScanPlan {
  readonly status: string;
  readonly "file-scan-tasks"?: readonly { readonly "data-file": PlannedFile }[];
  readonly "plan-tasks"?: readonly string[];
}

/** The files of a table, up to as many as fit one answer. */
export const filesQuery = (warehouse: string, table: Identifier) =>
  queryOptions({
    queryKey: [warehouse, "files", table],
    queryFn: async ({ signal }) => {
      const plan = (await post("/v1/namespaces/{namespace}/tables/{table}/plan", {
        warehouse,
        path: pathOf(table),
        body: { "use-snapshot-schema": false, "case-sensitive": true },
        signal,
      })) as unknown as ScanPlan;
      const files = (plan["file-scan-tasks"] ?? []).map((task) => task["data-file"]);
      return { files, isWhole: (plan["plan-tasks"] ?? []).length === 0 };
    },
    retry: false,
  });

export interface HistoryFilter {
  readonly kind?: string;
  readonly principal?: string;
  readonly engine?: string;
  readonly source?: string;
}

interface HistoryOf {
  readonly namespace?: readonly string[];
  readonly table?: string;
  readonly view?: string;
}

function askHistory(warehouse: string, of: HistoryOf, query: object, signal: AbortSignal) {
  const namespace = apiNamespace(of.namespace ?? []);
  const asked = { warehouse, query: query as never, signal };
  if (of.table !== undefined) {
    const path = { namespace, table: of.table };
    return get("/v1/namespaces/{namespace}/tables/{table}/history", { ...asked, path });
  }
  if (of.view !== undefined) {
    return get("/v1/namespaces/{namespace}/views/{view}/history", { ...asked, path: { namespace, view: of.view } });
  }
  if (of.namespace) return get("/v1/namespaces/{namespace}/history", { ...asked, path: { namespace } });
  return get("/v1/history", asked);
}

const HISTORY_EACH = 50;

/** Whose changes, and which of them. */
export interface HistoryAsked {
  readonly of: HistoryOf;
  readonly filter: HistoryFilter;
  readonly limit?: number;
}

export const historyQuery = (warehouse: string, { of, filter, limit = HISTORY_EACH }: HistoryAsked) =>
  infiniteQueryOptions({
    queryKey: [warehouse, "history", of, filter, limit],
    queryFn: ({ signal, pageParam }) =>
      askHistory(warehouse, of, { limit, ...filter, ...(pageParam ? { before: pageParam } : {}) }, signal),
    initialPageParam: "",
    getNextPageParam: (page) => page["next-before"],
  });

/** Ask for the newest changes alone, and put those that have come since before the ones that are shown. */
export async function renewHistory(
  client: QueryClient,
  warehouse: string,
  asked: HistoryAsked,
  signal: AbortSignal,
): Promise<void> {
  const { queryKey } = historyQuery(warehouse, asked);
  const first = await askHistory(warehouse, asked.of, { limit: asked.limit ?? HISTORY_EACH, ...asked.filter }, signal);
  client.setQueryData(queryKey, (known) =>
    known === undefined
      ? undefined
      : putBefore(
          known,
          first,
          ({ history }) => history,
          (page, history) => ({ ...page, history: [...history] }),
          ({ position }) => position,
        ),
  );
}

/** The newest changes of a table, view or namespace, as they are at this moment. */
export const newestChangesQuery = (warehouse: string, of: HistoryOf) =>
  queryOptions({
    queryKey: [warehouse, "newest changes", of],
    queryFn: async ({ signal }) => (await askHistory(warehouse, of, { limit: 5 }, signal)).history,
    staleTime: 0,
  });

export const droppedQuery = (warehouse: string) =>
  infiniteQueryOptions({
    queryKey: [warehouse, "dropped"],
    queryFn: ({ signal, pageParam }) =>
      get("/v1/dropped", { warehouse, query: { pageSize: pageSize(pageParam), pageToken: pageParam }, signal }),
    initialPageParam: "",
    getNextPageParam: (page) => page["next-page-token"],
  });

export type FoundObject = Answer<"/v1/search", "get">["objects"][number];

/** Namespaces, tables and views of which a name, a column or a comment holds the text. */
export const findQuery = (warehouse: string, text: string) =>
  queryOptions({
    queryKey: [warehouse, "find", text],
    queryFn: async ({ signal }): Promise<readonly FoundObject[]> => {
      if (text === "") return [];
      return (await get("/v1/search", { warehouse, query: { q: text, pageSize: 50, pageToken: "" }, signal })).objects;
    },
  });
