// What happened to a table's rows, as lines of JSON: page by page, and on from where an answer ended.
import { apiNamespace, type Identifier } from "./address.ts";
import { parseJson, send } from "./client.ts";

export type Row = Readonly<Record<string, unknown>>;

export interface RowChange {
  readonly kind: "insert" | "delete" | "update";
  readonly snapshot: string;
  readonly rowId: string | null;
  /** None of an insert. */
  readonly before: Row | null;
  /** None of a delete. */
  readonly after: Row | null;
}

export interface ChangesPage {
  readonly changes: readonly RowChange[];
  readonly columns: readonly string[];
  /** Where the answer ends: the `from` of the next one. */
  readonly position: string;
  readonly isComplete: boolean;
}

export interface ChangesAsked {
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  /** The columns that identify a row, divided by commas; else as the table has it. */
  readonly key?: string | undefined;
  readonly limit: number;
}

const OWN = new Set(["_change_type", "_change_ordinal", "_commit_snapshot_id", "_changed_row_id"]);

export async function readChanges(
  warehouse: string,
  { namespace, name }: Identifier,
  { from, to, key, limit }: ChangesAsked,
  signal?: AbortSignal,
): Promise<ChangesPage> {
  const answer = await send("get", "/v1/namespaces/{namespace}/tables/{table}/changes", {
    warehouse,
    path: { namespace: apiNamespace(namespace), table: name },
    query: { limit, ...(from ? { from } : {}), ...(to ? { to } : {}), ...(key ? { key } : {}) },
    headers: { Accept: "application/x-ndjson" },
    ...(signal ? { signal } : {}),
  });
  const lines = (await answer.text()).split("\n").filter(Boolean);
  const rows = lines.map((line) => parseJson(line) as Row);
  const end = rows.pop();
  if (end === undefined || typeof end["_position"] !== "string") throw new TypeError("The answer was cut: try again");
  return {
    changes: pairChanges(rows),
    columns: Object.keys(rows[0] ?? {}).filter((column) => !OWN.has(column)),
    position: end["_position"],
    isComplete: end["_is_complete"] === true,
  };
}

/** The two rows of an update come one after the other. One whose other half is in the next answer stands alone. */
function pairChanges(rows: readonly Row[]): readonly RowChange[] {
  const changes: RowChange[] = [];
  for (const row of rows) {
    const type = String(row["_change_type"]);
    const last = changes.at(-1);
    if (type === "UPDATE_AFTER" && last?.kind === "update" && last.after === null) {
      changes[changes.length - 1] = { ...last, after: row };
      continue;
    }
    const isAfter = type === "INSERT" || type === "UPDATE_AFTER";
    changes.push({
      kind: type === "INSERT" ? "insert" : type === "DELETE" ? "delete" : "update",
      snapshot: String(row["_commit_snapshot_id"]),
      rowId: row["_changed_row_id"] == null ? null : String(row["_changed_row_id"]),
      before: isAfter ? null : row,
      after: isAfter ? row : null,
    });
  }
  return changes;
}

/** The rows as lines of JSON, as the route gives them. */
export function writeLines(changes: readonly RowChange[]): string {
  return changes
    .flatMap(({ before, after }) => [before, after].filter((row) => row !== null))
    .map((row) => `${JSON.stringify(row)}\n`)
    .join("");
}
