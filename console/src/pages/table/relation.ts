// A table as acts take it.
import type { Request } from "../../parts/Act.tsx";
import { type Relation, requestOf } from "../acts/relation.ts";
import type { TablePageProps } from "./Table.tsx";

export interface TableActProps extends TablePageProps {
  readonly close: () => void;
}

export function relationOf({ warehouse, table }: TablePageProps): Relation {
  return { warehouse, kind: "table", levels: [...table.namespace, table.name] };
}

type Below = "/restore" | "/expire" | "/rows/flush";

/** A request to a route below the table. */
export function requestBelow(table: TablePageProps, act: Below, body?: unknown): Request {
  return { ...requestOf(relationOf(table), "POST", body), path: `/v1/namespaces/{namespace}/tables/{table}${act}` };
}

/** A commit to the table as long as it is the one that is shown. */
export function commitOf(table: TablePageProps, requirements: readonly object[], updates: readonly object[]): Request {
  const uuid = { type: "assert-table-uuid", uuid: table.metadata["table-uuid"] };
  return requestOf(relationOf(table), "POST", { requirements: [uuid, ...requirements], updates });
}
