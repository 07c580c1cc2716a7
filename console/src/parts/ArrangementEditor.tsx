// What a table is partitioned or sorted by: columns, each with a transform.
import { ArrowUp, Plus, Trash2 } from "lucide-react";
import { type ColumnNode, listPaths } from "../api/columns.ts";
import type { PartitionField, SortField } from "../api/iceberg.ts";
import { quoteColumn } from "../api/address.ts";

const TRANSFORMS = ["identity", "year", "month", "day", "hour", "bucket", "truncate"] as const;
const WIDE = new Set(["bucket", "truncate"]);

export interface Arranged {
  readonly key: string;
  /** The key of a column. */
  readonly column: string;
  readonly transform: string;
  readonly width: number;
  readonly direction: "asc" | "desc";
  readonly nulls: "nulls-first" | "nulls-last";
}

let made = 0;

function newField(column: string): Arranged {
  const rest = { transform: "identity", width: 16, direction: "asc", nulls: "nulls-first" } as const;
  return { key: `field${++made}`, column, ...rest };
}

/** The fields of a spec or order, as far as this editor knows their transforms. */
export function arrangedOf(fields: readonly (PartitionField | SortField)[]): readonly Arranged[] {
  return fields.flatMap((field) => {
    const [, name = "", width] = /^(\w+)(?:\[(\d+)\])?$/.exec(field.transform) ?? [];
    const source = field["source-id"];
    if (source === undefined || name === "void") return [];
    const order = "direction" in field ? { direction: field.direction, nulls: field["null-order"] } : {};
    return [{ ...newField(`id${source}`), transform: name, width: Number(width ?? 16), ...order }];
  });
}

function transformOf({ transform, width }: Arranged): string {
  return WIDE.has(transform) ? `${transform}[${width}]` : transform;
}

/** A spec for the API. Fields that were there keep their names; ids of fields are the server's to choose. */
export function buildSpec(
  fields: readonly Arranged[],
  nodes: readonly ColumnNode[],
  ids: ReadonlyMap<string, number>,
  known: readonly PartitionField[] = [],
): object {
  const paths = new Map(listPaths(nodes));
  return {
    fields: fields.map((field) => {
      const source = ids.get(field.column);
      const transform = transformOf(field);
      const before = known.find((one) => one["source-id"] === source && one.transform === transform);
      const path = (paths.get(field.column) ?? []).join(".");
      const name = before?.name ?? (field.transform === "identity" ? path : `${path}_${field.transform}`);
      return { "source-id": source, name, transform };
    }),
  };
}

export function buildOrder(fields: readonly Arranged[], ids: ReadonlyMap<string, number>): object {
  return {
    "order-id": fields.length > 0 ? 1 : 0,
    fields: fields.map((field) => ({
      "source-id": ids.get(field.column),
      transform: transformOf(field),
      direction: field.direction,
      "null-order": field.nulls,
    })),
  };
}

/** The fields as commands take them; empty: none. */
export function writeArrangement(fields: readonly Arranged[], nodes: readonly ColumnNode[], isSorted: boolean): string {
  const paths = new Map(listPaths(nodes));
  return fields
    .map(({ column, transform, width, direction, nulls }) => {
      const path = quoteColumn(paths.get(column) ?? []);
      const plain = transform === "identity" ? path : `${transform}(${WIDE.has(transform) ? `${width}, ` : ""}${path})`;
      return isSorted ? `${plain} ${direction} ${nulls.replace("-", " ")}` : plain;
    })
    .join(", ");
}

export function ArrangementEditor({
  name,
  nodes,
  fields,
  change,
  isSorted = false,
}: {
  name: string;
  nodes: readonly ColumnNode[];
  fields: readonly Arranged[];
  change: (fields: readonly Arranged[]) => void;
  isSorted?: boolean;
}) {
  const paths = listPaths(nodes).filter(([, path]) => path.every((level) => level !== ""));
  const set = (key: string, values: Partial<Arranged>) =>
    change(fields.map((field) => (field.key === key ? { ...field, ...values } : field)));
  const raise = (place: number) => {
    const next = [...fields];
    next.splice(place - 1, 0, ...next.splice(place, 1));
    change(next);
  };
  return (
    <fieldset className="arrangement">
      <legend>{name}</legend>
      {fields.map((field, place) => (
        <div key={field.key} className="row tight">
          <select
            className="mono"
            aria-label={`Column ${place + 1} of ${name}`}
            value={field.column}
            onChange={({ target }) => set(field.key, { column: target.value })}
          >
            {paths.map(([key, path]) => (
              <option key={key} value={key}>
                {path.join(".")}
              </option>
            ))}
          </select>
          <select
            aria-label={`Transform ${place + 1} of ${name}`}
            value={field.transform}
            onChange={({ target }) => set(field.key, { transform: target.value })}
          >
            {TRANSFORMS.map((transform) => (
              <option key={transform} value={transform}>
                {transform === "identity" ? "value" : transform}
              </option>
            ))}
          </select>
          {WIDE.has(field.transform) ? (
            <input
              type="number"
              className="short"
              min={1}
              aria-label={`${field.transform === "bucket" ? "Buckets" : "Width"} ${place + 1} of ${name}`}
              value={field.width}
              onChange={({ target }) => set(field.key, { width: Math.max(1, Math.round(target.valueAsNumber || 1)) })}
            />
          ) : null}
          {isSorted ? <OrderFields field={field} place={place} set={(values) => set(field.key, values)} /> : null}
          <button
            type="button"
            className="button only-icon"
            aria-label={`Move field ${place + 1} of ${name} up`}
            disabled={place === 0}
            onClick={() => raise(place)}
          >
            <ArrowUp className="icon" aria-hidden />
          </button>
          <button
            type="button"
            className="button only-icon"
            aria-label={`Remove field ${place + 1} of ${name}`}
            onClick={() => change(fields.filter(({ key }) => key !== field.key))}
          >
            <Trash2 className="icon" aria-hidden />
          </button>
        </div>
      ))}
      {fields.length === 0 ? (
        <p className="quiet small">{isSorted ? "No order." : "Nothing: all files in one place."}</p>
      ) : null}
      <div>
        <button
          type="button"
          className="button small"
          disabled={paths.length === 0}
          onClick={() => change([...fields, newField(paths[0]?.[0] ?? "")])}
        >
          <Plus className="icon" aria-hidden /> Add a field
        </button>
      </div>
    </fieldset>
  );
}

function OrderFields({
  field,
  place,
  set,
}: {
  field: Arranged;
  place: number;
  set: (values: Partial<Arranged>) => void;
}) {
  return (
    <>
      <select
        aria-label={`Direction ${place + 1}`}
        value={field.direction}
        onChange={({ target }) => set({ direction: target.value === "desc" ? "desc" : "asc" })}
      >
        <option value="asc">ascending</option>
        <option value="desc">descending</option>
      </select>
      <select
        aria-label={`Nulls ${place + 1}`}
        value={field.nulls}
        onChange={({ target }) => set({ nulls: target.value === "nulls-last" ? "nulls-last" : "nulls-first" })}
      >
        <option value="nulls-first">nulls first</option>
        <option value="nulls-last">nulls last</option>
      </select>
    </>
  );
}
