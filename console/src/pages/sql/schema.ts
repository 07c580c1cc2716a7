// What completion knows: names of tables and views, and the columns of tables that the text names.
import type { SQLNamespace } from "@codemirror/lang-sql";
import { useQueries, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { apiNamespace, type Identifier, joinIdentifier, quoteSql } from "../../api/address.ts";
import { get } from "../../api/client.ts";
import { currentSchema } from "../../api/iceberg.ts";
import { tableQuery } from "../../api/queries.ts";

const NAMESPACES = 50;
const TABLES_EACH = 1000;
const NAMED = 6;

/** Tables of the first namespaces: enough to begin with, and not all of a large lake. */
async function readTables(warehouse: string, signal: AbortSignal): Promise<readonly Identifier[]> {
  const { namespaces } = await get("/v1/namespaces", { warehouse, query: { pageSize: NAMESPACES }, signal });
  const lists = namespaces.map((namespace) =>
    get("/v1/namespaces/{namespace}/tables", {
      warehouse,
      path: { namespace: apiNamespace(namespace) },
      query: { pageSize: TABLES_EACH },
      signal,
    }),
  );
  return (await Promise.all(lists)).flatMap(({ identifiers }) => identifiers);
}

export function useSchema(warehouse: string, text: string): SQLNamespace {
  const { data: tables } = useQuery({
    queryKey: [warehouse, "completion"],
    queryFn: ({ signal }) => readTables(warehouse, signal),
    staleTime: 60_000,
  });
  const named = useMemo(
    () => (tables ?? []).filter(({ namespace, name }) => text.includes(quoteSql([...namespace, name]))).slice(0, NAMED),
    [tables, text],
  );
  const loaded = useQueries({
    queries: named.map((table) => ({ ...tableQuery(warehouse, table), staleTime: 60_000 })),
    combine: (answers) => answers.map(({ data }) => data),
  });
  return useMemo(() => {
    const columns = new Map(
      named.map((table, place) => {
        const metadata = loaded[place];
        return [joinIdentifier(table), metadata ? currentSchema(metadata).fields.map(({ name }) => name) : []] as const;
      }),
    );
    return nest(tables ?? [], columns);
  }, [tables, named, loaded]);
}

type Nested = { [name: string]: Nested | readonly string[] };

function nest(tables: readonly Identifier[], columns: ReadonlyMap<string, readonly string[]>): SQLNamespace {
  const root: Nested = Object.create(null) as Nested;
  for (const table of tables) {
    let at = root;
    for (const level of table.namespace) {
      const below = at[level];
      at = below && !Array.isArray(below) ? (below as Nested) : (at[level] = Object.create(null) as Nested);
    }
    at[table.name] = columns.get(joinIdentifier(table)) ?? [];
  }
  return root as SQLNamespace;
}
