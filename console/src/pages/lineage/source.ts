// What the page asks of the server, about the warehouse that is chosen.
import { apiNamespace, FIRST_WAREHOUSE } from "../../api/address.ts";
import { get } from "../../api/client.ts";
import type { View } from "./address.ts";
import type { Answer, Dataset } from "./graph.ts";
import type { Entry } from "./history.ts";
import type { RunAnswer } from "./runs.ts";

const MOST_NODES = 500;
const MOST_FOUND = 50;
const MOST_ENTRIES = 50;

let warehouse = FIRST_WAREHOUSE;

export function chooseWarehouse(name: string): void {
  warehouse = name;
}

export async function askGraph({ node, column, direction, depth, at }: View, signal: AbortSignal): Promise<Answer> {
  const named = column ? `${node}#${column}` : node;
  const query = { node: named, direction, depth, columns: true, limit: MOST_NODES, ...(at ? { at } : {}) };
  return (await get("/lineage/v1/graph", { warehouse, query, signal })) as unknown as Answer;
}

/** What the server finds by a part of a name; all, the latest first, by none. */
export async function findDatasets(search: string, signal: AbortSignal): Promise<Dataset[]> {
  const answer = await get("/lineage/v1/datasets", { warehouse, query: { search, limit: MOST_FOUND }, signal });
  return answer.datasets as unknown as Dataset[];
}

export async function askRun(run: string): Promise<RunAnswer> {
  return (await get("/lineage/v1/runs/{run}", { warehouse, path: { run } })) as unknown as RunAnswer;
}

export async function askHistory({ table, kind }: Dataset): Promise<{ entries: Entry[]; isWhole: boolean }> {
  const namespace = apiNamespace(table?.namespace ?? []);
  const [name, query] = [table?.name ?? "", { limit: MOST_ENTRIES }];
  const answer =
    kind === "VIEW"
      ? await get("/v1/namespaces/{namespace}/views/{view}/history", {
          warehouse,
          query,
          path: { namespace, view: name },
        })
      : await get("/v1/namespaces/{namespace}/tables/{table}/history", {
          warehouse,
          query,
          path: { namespace, table: name },
        });
  return { entries: answer.history as unknown as Entry[], isWhole: !answer["next-before"] };
}
