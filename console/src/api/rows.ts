// Rows of a query, by Arrow: columns keep their types and their order, and an answer without rows has columns, too.
import { type Column, type DataType, type Table, tableFromIPC, Type } from "@uwdata/flechette";
import { ApiError, send } from "./client.ts";
import type { Field, IcebergType, Schema } from "./iceberg.ts";
import { TypeTextError } from "./types.ts";

export interface ResultColumn {
  readonly name: string;
  readonly type: string;
  readonly isNumber: boolean;
  readonly values: Column<unknown>;
}

export interface QueryResult {
  readonly columns: readonly ResultColumn[];
  readonly rows: number;
  readonly seconds: number;
  /** DuckLake's number of the snapshot that was read. */
  readonly snapshot: string;
}

export interface QueryAsked {
  readonly sql: string;
  readonly limit: number;
  readonly queryId?: string;
  readonly at?: string;
  readonly namespace?: readonly string[];
  readonly explain?: boolean;
  readonly signal?: AbortSignal;
}

export async function runQuery(warehouse: string, asked: QueryAsked): Promise<QueryResult> {
  const begun = performance.now();
  const body = {
    sql: asked.sql,
    limit: asked.limit,
    explain: asked.explain ?? false,
    namespace: [...(asked.namespace ?? ["main"])],
    ...(asked.at ? { at: asked.at } : {}),
    ...(asked.queryId ? { "query-id": asked.queryId } : {}),
  };
  const answer = await send("post", "/sql/v1/query", {
    warehouse,
    body,
    headers: { Accept: "application/vnd.apache.arrow.stream" },
    ...(asked.signal ? { signal: asked.signal } : {}),
  });
  const table = await readTable(answer, asked.signal);
  const columns = table.schema.fields.map((field, place) => ({
    name: field.name,
    type: nameArrowType(field.type),
    isNumber: NUMBERS.has(field.type.typeId),
    values: table.getChildAt(place) as Column<unknown>,
  }));
  return {
    columns,
    rows: table.numRows,
    seconds: (performance.now() - begun) / 1000,
    snapshot: answer.headers.get("Duckicelake-Snapshot") ?? "",
  };
}

/** The table of an answer. Throws ApiError where it is none, or is cut off. */
async function readTable(answer: Response, signal: AbortSignal | undefined): Promise<Table> {
  const id = answer.headers.get("X-Request-Id");
  try {
    const bytes = await answer.arrayBuffer();
    if (bytes.byteLength > 0) return tableFromIPC(bytes, { useDate: false, useDecimalInt: true, useBigInt: true });
  } catch (error: unknown) {
    if (signal?.aborted) throw error;
  }
  const message = "What came is no result of a query, or was cut off. Run it again; a proxy may stand in between.";
  throw new ApiError(message, answer.status, "NoQueryResult", id);
}

/** The columns of a query, as the server finds them without reading rows. Throws TypeTextError for a type that Iceberg has none of. */
export async function findColumns(
  warehouse: string,
  sql: string,
  namespace: readonly string[],
  signal?: AbortSignal,
): Promise<Schema> {
  const body = {
    sql: `SELECT * FROM (\n${sql}\n) LIMIT 0`,
    namespace: [...(namespace.length > 0 ? namespace : ["main"])],
  };
  const headers = { Accept: "application/vnd.apache.arrow.stream" };
  const answer = await send("post", "/sql/v1/query", { warehouse, body, headers, ...(signal ? { signal } : {}) });
  let last = 0;
  const take = () => ++last;
  const fields = (await readTable(answer, signal)).schema.fields.map((field) => fieldOf(field, take));
  return { type: "struct", "schema-id": 0, fields };
}

interface ArrowField {
  readonly name: string;
  readonly type: DataType;
}

function fieldOf({ name, type }: ArrowField, take: () => number): Field {
  return { id: take(), name, type: icebergType(type, take), required: false };
}

/** Iceberg's type of one of Arrow's. */
function icebergType(type: DataType, take: () => number): IcebergType {
  const known = type as unknown as Record<string, unknown>;
  const children = (known["children"] ?? []) as readonly ArrowField[];
  const [first] = children;
  switch (type.typeId) {
    case Type.Struct:
      return { type: "struct", fields: children.map((child) => fieldOf(child, take)) };
    case Type.List:
    case Type.LargeList:
    case Type.ListView:
    case Type.FixedSizeList:
      return {
        type: "list",
        "element-id": take(),
        "element-required": false,
        element: first ? icebergType(first.type, take) : "unknown",
      };
    case Type.Map:
      return mapOf(first, take);
    default:
      return primitiveOf(type, known);
  }
}

function mapOf(entries: ArrowField | undefined, take: () => number): IcebergType {
  const [key, value] = ((entries?.type as unknown as Record<string, unknown>)["children"] ??
    []) as readonly ArrowField[];
  if (!key || !value) throw new TypeTextError("A map has no keys or values");
  const ids = { "key-id": take(), "value-id": take(), "value-required": false };
  return { type: "map", ...ids, key: icebergType(key.type, take), value: icebergType(value.type, take) };
}

const NANOSECONDS = 3;

function primitiveOf(type: DataType, known: Readonly<Record<string, unknown>>): string {
  switch (type.typeId) {
    case Type.Int: {
      const bits = Number(known["bitWidth"]) + (known["signed"] === false ? 1 : 0);
      if (bits > 64) break;
      return bits <= 32 ? "int" : "long";
    }
    case Type.Float:
      return known["precision"] === 2 ? "double" : "float";
    case Type.Decimal:
      return `decimal(${String(known["precision"])}, ${String(known["scale"])})`;
    case Type.Timestamp:
      return `timestamp${known["timezone"] ? "tz" : ""}${known["unit"] === NANOSECONDS ? "_ns" : ""}`;
    default: {
      const name = SIMPLE.get(type.typeId);
      if (name) return name;
    }
  }
  throw new TypeTextError(`Iceberg has no type for ${nameArrowType(type)}: cast the column to another one`);
}

const SIMPLE: ReadonlyMap<number, string> = new Map([
  [Type.Bool, "boolean"],
  [Type.Date, "date"],
  [Type.Time, "time"],
  [Type.Utf8, "string"],
  [Type.LargeUtf8, "string"],
  [Type.Utf8View, "string"],
  [Type.Binary, "binary"],
  [Type.LargeBinary, "binary"],
  [Type.BinaryView, "binary"],
]);

const NUMBERS: ReadonlySet<number> = new Set([Type.Int, Type.Float, Type.Decimal]);

function nameArrowType(type: DataType): string {
  const known = type as unknown as Record<string, unknown>;
  const children = (known["children"] ?? []) as readonly { name: string; type: DataType }[];
  switch (type.typeId) {
    case Type.Int:
      return `${known["signed"] === false ? "u" : ""}int${String(known["bitWidth"])}`;
    case Type.Float:
      return ["half", "float", "double"][Number(known["precision"])] ?? "float";
    case Type.Decimal:
      return `decimal(${String(known["precision"])}, ${String(known["scale"])})`;
    case Type.Utf8:
    case Type.LargeUtf8:
    case Type.Utf8View:
      return "text";
    case Type.Binary:
    case Type.LargeBinary:
    case Type.BinaryView:
    case Type.FixedSizeBinary:
      return "bytes";
    case Type.Bool:
      return "boolean";
    case Type.Date:
      return "date";
    case Type.Time:
      return "time";
    case Type.Timestamp:
      return known["timezone"] ? "timestamp with zone" : "timestamp";
    case Type.List:
    case Type.LargeList:
    case Type.ListView:
    case Type.FixedSizeList:
      return `list of ${children[0] ? nameArrowType(children[0].type) : "values"}`;
    case Type.Struct:
      return "struct";
    case Type.Map:
      return "map";
    default:
      return "value";
  }
}

const DAY_MS = 86_400_000;

/** A value as a cell shows it; null for NULL. */
export function formatCell(value: unknown, type: string): string | null {
  if (value === null || value === undefined) return null;
  if (type.startsWith("decimal") && (typeof value === "number" || typeof value === "bigint")) {
    return formatDecimal(value, type);
  }
  if (typeof value === "number" && type === "date") return new Date(value).toISOString().slice(0, 10);
  if (typeof value === "number" && type.startsWith("timestamp")) return formatTimestamp(value, type);
  if ((typeof value === "number" || typeof value === "bigint") && type === "time") return formatTime(value);
  if (typeof value === "object") return formatNested(value);
  return String(value);
}

/** Decimals come as integers of their last digit, so that none is rounded. */
function formatDecimal(value: number | bigint, type: string): string {
  const scale = scaleOf(type);
  const digits = String(value < 0 ? -value : value).padStart(scale + 1, "0");
  const whole = digits.slice(0, digits.length - scale);
  return `${value < 0 ? "-" : ""}${whole}${scale > 0 ? `.${digits.slice(-scale)}` : ""}`;
}

function scaleOf(type: string): number {
  return Number(/, (\d+)\)$/.exec(type)?.[1] ?? 0);
}

/** A value as a place in a chart; NaN for what is none. */
export function measure(value: unknown, type: string): number {
  if (value === null || value === undefined) return Number.NaN;
  const number = Number(value);
  return type.startsWith("decimal") ? number / 10 ** scaleOf(type) : number;
}

/** Flechette gives milliseconds, and microseconds as their fraction. */
function formatTimestamp(ms: number, type: string): string {
  const date = new Date(Math.floor(ms));
  if (Number.isNaN(date.getTime())) return String(ms);
  const micros = Math.round((ms - Math.floor(ms)) * 1000);
  const text = date.toISOString().replace("T", " ").replace("Z", "");
  const fine = micros > 0 ? `${text}${String(micros).padStart(3, "0")}` : text.replace(/\.000$/, "");
  return type === "timestamp" ? fine : `${fine} UTC`;
}

function formatTime(micros: number | bigint): string {
  const ms = Number(micros) / 1000;
  return new Date(((ms % DAY_MS) + DAY_MS) % DAY_MS)
    .toISOString()
    .slice(11, 23)
    .replace(/\.000$/, "");
}

function formatNested(value: object): string {
  if (value instanceof Uint8Array) return Array.from(value, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (value instanceof Date) return value.toISOString();
  return JSON.stringify(value, (_key, one: unknown) => {
    if (typeof one === "bigint") return one.toString();
    if (one instanceof Map) return Object.fromEntries(one);
    return ArrayBuffer.isView(one) ? Array.from(one as unknown as Iterable<number>) : one;
  });
}

/** The rows as CSV, with a header; as RFC 4180 has it. */
export function writeCsv({ columns, rows }: QueryResult): string {
  const quote = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = [columns.map(({ name }) => quote(name)).join(",")];
  for (let row = 0; row < rows; row++) {
    lines.push(columns.map(({ values, type }) => quote(formatCell(values.at(row), type) ?? "")).join(","));
  }
  return `${lines.join("\r\n")}\r\n`;
}
