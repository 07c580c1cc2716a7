// What the pages of operation ask: the audit trail, jobs, statistics of tables, what doctor finds, the API's description.
import { infiniteQueryOptions, queryOptions, useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { PAGED, PAGE_SIZE } from "./administration.ts";
import { type Answer, ApiError, get, getDocument, send, UnknownAnswerError } from "./client.ts";

export type AuditEntry = Answer<"/v1/audit", "get">["entries"][number];
export type Job = Answer<"/pipeline/v1/jobs", "get">["jobs"][number];
export type Statistics = Answer<"/pipeline/v1/tables", "get">["tables"][number];
export type Finding = Answer<"/v1/doctor", "get">["findings"][number];

export interface AuditFilter {
  readonly principal?: string;
  readonly resource?: string;
  readonly operation?: string;
  readonly result?: string;
  readonly since?: string;
}

const LIVE_MS = 3000;
const ENTRIES_EACH = 200;
const MOST_NEW = 1000;

const auditQuery = (warehouse: string, filter: AuditFilter) =>
  infiniteQueryOptions({
    queryKey: [warehouse, "audit", filter],
    queryFn: async ({ signal, pageParam }) => {
      const before = pageParam === null ? {} : { before: pageParam };
      const query = { ...filter, ...before, limit: ENTRIES_EACH };
      const page = await get("/v1/audit", { warehouse, query, signal });
      // What comes next is read of the entries before the page is: an answer without them would be waited for for ever.
      if (!Array.isArray(page.entries)) throw new UnknownAnswerError(200, null);
      return page;
    },
    initialPageParam: null as number | null,
    getNextPageParam: ({ entries }) => (entries.length < ENTRIES_EACH ? undefined : entries[0]?.id),
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  });

/** Entries by pages, the newest page first, in each of them the newest last; what comes since is asked for alone. */
export function useAudit(warehouse: string, filter: AuditFilter, isLive: boolean) {
  const client = useQueryClient();
  const options = auditQuery(warehouse, filter);
  const query = useInfiniteQuery(options);
  const newer = useQuery({
    queryKey: [warehouse, "newer audit", filter],
    queryFn: async ({ signal }) => {
      const after = client.getQueryData(options.queryKey)?.pages[0]?.entries.at(-1)?.id ?? 0;
      const { entries } = await get("/v1/audit", { warehouse, query: { ...filter, after, limit: MOST_NEW }, signal });
      if (entries.length === MOST_NEW) await client.resetQueries({ queryKey: options.queryKey });
      else if (entries.length > 0) {
        client.setQueryData(options.queryKey, (known) => {
          const [first = { entries: [] }, ...older] = known?.pages ?? [];
          return known && { ...known, pages: [{ entries: [...first.entries, ...entries] }, ...older] };
        });
      }
      return entries.length;
    },
    enabled: isLive && query.data !== undefined,
    refetchInterval: LIVE_MS,
    retry: false,
  });
  return { query, isFollowing: isLive && newer.error === null };
}

export interface JobFilter {
  readonly kind?: string;
  readonly result?: string;
}

export const jobsQuery = (warehouse: string, filter: JobFilter) =>
  infiniteQueryOptions({
    queryKey: [warehouse, "jobs", filter],
    queryFn: ({ signal, pageParam }) =>
      get("/pipeline/v1/jobs", { warehouse, query: { ...filter, pageSize: 200, pageToken: pageParam }, signal }),
    ...PAGED,
    refetchInterval: 10_000,
  });

export const allStatisticsQuery = (warehouse: string) =>
  infiniteQueryOptions({
    queryKey: [warehouse, "all statistics"],
    queryFn: ({ signal, pageParam }) =>
      get("/pipeline/v1/tables", { warehouse, query: { pageSize: PAGE_SIZE, pageToken: pageParam }, signal }),
    ...PAGED,
  });

export type PlannedJob = Answer<"/pipeline/v1/plan", "get">["jobs"][number];

/** What maintenance would do now. */
export const planQuery = (warehouse: string) =>
  infiniteQueryOptions({
    queryKey: [warehouse, "plan"],
    queryFn: ({ signal, pageParam }) =>
      get("/pipeline/v1/plan", { warehouse, query: { pageSize: PAGE_SIZE, pageToken: pageParam }, signal }),
    ...PAGED,
  });

export type UpkeepTask = Answer<"/pipeline/v1/upkeep", "get">["tasks"][number];

/** The queue of upkeep. */
export const upkeepQuery = (warehouse: string) =>
  infiniteQueryOptions({
    queryKey: [warehouse, "upkeep"],
    queryFn: ({ signal, pageParam }) =>
      get("/pipeline/v1/upkeep", { warehouse, query: { pageSize: PAGE_SIZE, pageToken: pageParam }, signal }),
    ...PAGED,
    refetchInterval: 10_000,
  });

/** What the lake does by itself, and by which policies. */
export const upkeepPoliciesQuery = (warehouse: string) =>
  queryOptions({
    queryKey: [warehouse, "upkeep policies"],
    queryFn: ({ signal }) => get("/pipeline/v1/policies", { warehouse, signal }),
  });

export interface Parameter {
  readonly name: string;
  readonly in: "path" | "query" | "header" | "cookie";
  readonly required?: boolean;
  readonly description?: string;
  readonly schema?: Schema;
}

export interface Schema {
  readonly $ref?: string;
  readonly type?: string;
  readonly description?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly default?: unknown;
  readonly additionalProperties?: Schema | boolean;
}

interface Content {
  readonly content?: Readonly<Record<string, { readonly schema?: Schema }>>;
}

export interface Operation {
  readonly summary?: string;
  readonly description?: string;
  readonly tags?: readonly string[];
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: Content & { readonly required?: boolean };
  readonly responses?: Readonly<Record<string, Content & { readonly description?: string }>>;
}

export interface ApiDescription {
  readonly info: { readonly title: string; readonly version: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components?: { readonly schemas?: Readonly<Record<string, Schema>> };
}

export const descriptionQuery = () =>
  queryOptions({
    queryKey: ["api description"],
    queryFn: ({ signal }) => getDocument("openapi.json", signal) as Promise<ApiDescription>,
    staleTime: Number.POSITIVE_INFINITY,
  });

/** How far a check is: it runs while it has no findings, and all is well if it has none at its end. */
export interface CheckProgress {
  readonly check: string;
  readonly seconds: number;
  readonly findings?: readonly Finding[];
  /** Of a check that looks for files. */
  readonly done?: number;
  readonly total?: number;
}

/** Has the lake examined, check by check. hasFiles: look for every data file in the store, too. Throws ApiError. */
export async function examineLake(
  warehouse: string,
  hasFiles: boolean,
  signal: AbortSignal,
  report: (progress: CheckProgress) => void,
): Promise<void> {
  const headers = { Accept: "application/x-ndjson" };
  const answer = await send("get", "/v1/doctor", { warehouse, query: { files: hasFiles }, headers, signal });
  try {
    for await (const line of readLines(answer)) {
      const said = JSON.parse(line) as CheckProgress | Answer<"/v1/doctor", "get">;
      if (!("check" in said)) return void said.findings.length;
      report(said);
    }
  } catch (error: unknown) {
    if (signal.aborted) throw error;
  }
  const message = "The answer was cut off before the last check. The server or the network may be down.";
  throw new ApiError(message, 0, "CutAnswer", answer.headers.get("X-Request-Id"));
}

async function* readLines(answer: Response): AsyncGenerator<string> {
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader?.read(); part && !part.done; part = await reader?.read()) {
    const lines = (rest + part.value).split("\n");
    rest = lines.pop() ?? "";
    yield* lines;
  }
}
