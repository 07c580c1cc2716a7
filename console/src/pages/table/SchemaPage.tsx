// Columns with their types, comments and marks; how the table is divided and sorted.
import { KeyRound, Layers, SortAsc } from "lucide-react";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef } from "react";
import {
  currentSchema,
  type Field,
  fieldsWithin,
  nameType,
  type PartitionField,
  type Schema,
  type SortField,
  type TableMetadata,
} from "../../api/iceberg.ts";
import { useAddressPart } from "../../parts/addressText.ts";
import { Card } from "../../parts/Card.tsx";
import { plural } from "../../parts/format.ts";
import { Empty } from "../../parts/Notice.tsx";
import { ConstraintsCard } from "./constraints.tsx";
import type { TablePageProps } from "./Table.tsx";

const ROW_PX = 37;
/** Tables of up to so many columns are shown whole; of larger ones, what is seen. */
const SHOWN_WHOLE = 200;

export function SchemaPage(table: TablePageProps) {
  const { metadata } = table;
  const schema = currentSchema(metadata);
  const spec = metadata["partition-specs"].find((one) => one["spec-id"] === metadata["default-spec-id"]);
  const order = metadata["sort-orders"].find((one) => one["order-id"] === metadata["default-sort-order-id"]);
  const marks = useMemo(() => marksOf(schema, spec?.fields ?? [], order?.fields ?? []), [schema, spec, order]);
  const [part, setPart] = useAddressPart();
  return (
    <>
      <Card
        title={plural(schema.fields.length, "column")}
        aside={
          <input
            type="search"
            placeholder="Part of a name or comment"
            aria-label="Part of a name or comment"
            value={part}
            onChange={({ target }) => setPart(target.value)}
          />
        }
      >
        <FieldTable schema={schema} marks={marks} part={part} />
      </Card>
      <div className="columns">
        <Card title="Partitioned by">
          <Partitions fields={spec?.fields ?? []} metadata={metadata} />
        </Card>
        <Card title="Sorted by">
          <Sorts fields={order?.fields ?? []} metadata={metadata} />
        </Card>
      </div>
      <ConstraintsCard {...table} />
    </>
  );
}

interface Mark {
  readonly isKey: boolean;
  readonly partition: string | null;
  readonly sort: string | null;
}

type Marks = ReadonlyMap<number, Mark>;

function marksOf(schema: Schema, partitions: readonly PartitionField[], sorts: readonly SortField[]): Marks {
  const keys = new Set(schema["identifier-field-ids"] ?? []);
  const all = new Map<number, Mark>();
  const at = (id: number): Mark => all.get(id) ?? { isKey: keys.has(id), partition: null, sort: null };
  for (const id of keys) all.set(id, at(id));
  for (const field of partitions)
    for (const id of sourcesOf(field)) all.set(id, { ...at(id), partition: field.transform });
  for (const field of sorts) for (const id of sourcesOf(field)) all.set(id, { ...at(id), sort: field.direction });
  return all;
}

function sourcesOf(field: { "source-id"?: number; "source-ids"?: readonly number[] }): readonly number[] {
  return field["source-ids"] ?? (field["source-id"] === undefined ? [] : [field["source-id"]]);
}

interface Line {
  readonly field: Field;
  readonly depth: number;
}

function linesOf(fields: readonly Field[], depth: number, part: string): Line[] {
  return fields.flatMap((field) => {
    const within = linesOf(fieldsWithin(field.type), depth + 1, part);
    const isFound = !part || `${field.name} ${field.doc ?? ""}`.toLowerCase().includes(part);
    return isFound || within.length > 0 ? [{ field, depth }, ...within] : [];
  });
}

export function FieldTable({ schema, marks, part = "" }: { schema: Schema; marks?: Marks; part?: string }) {
  const lines = useMemo(() => linesOf(schema.fields, 0, part.trim().toLowerCase()), [schema, part]);
  const scroll = useRef<HTMLDivElement>(null);
  const isWhole = lines.length <= SHOWN_WHOLE;
  const rows = useVirtualizer({
    count: lines.length,
    enabled: !isWhole,
    getScrollElement: () => scroll.current,
    estimateSize: () => ROW_PX,
    overscan: 20,
  });
  if (lines.length === 0) return <Empty title="No column is called so" />;
  const items = rows.getVirtualItems();
  const shown = isWhole ? lines : items.flatMap(({ index }) => lines[index] ?? []);
  const above = items[0]?.start ?? 0;
  const below = rows.getTotalSize() - (items.at(-1)?.end ?? 0);
  return (
    <div
      className={isWhole ? "scroll cards" : "scroll tall cards"}
      ref={scroll}
      tabIndex={0}
      role="group"
      aria-label="Columns"
    >
      <table>
        <thead>
          <tr>
            <th scope="col">Column</th>
            <th scope="col">Type</th>
            <th scope="col">Null</th>
            <th scope="col">Comment</th>
          </tr>
        </thead>
        <tbody>
          {!isWhole && above > 0 ? <Spacer height={above} /> : null}
          {shown.map(({ field, depth }, place) => (
            <FieldRow
              key={field.id}
              field={field}
              depth={depth}
              mark={marks?.get(field.id)}
              index={isWhole ? place : items[place]?.index}
              measure={isWhole ? undefined : rows.measureElement}
            />
          ))}
          {!isWhole && below > 0 ? <Spacer height={below} /> : null}
        </tbody>
      </table>
    </div>
  );
}

function Spacer({ height }: { height: number }) {
  return (
    <tr className="spacer" aria-hidden>
      <td colSpan={4} style={{ height, padding: 0 }} />
    </tr>
  );
}

interface FieldRowProps extends Line {
  readonly mark: Mark | undefined;
  readonly index: number | undefined;
  /** Where only the rows that are seen are drawn. */
  readonly measure: ((row: Element | null) => void) | undefined;
}

function FieldRow({ field, depth, mark, index, measure }: FieldRowProps) {
  const standard = field["write-default"] ?? field["initial-default"];
  return (
    <tr data-index={index} ref={measure}>
      <td className="mono" style={depth > 0 ? { paddingLeft: 16 + depth * 20 } : undefined}>
        <span className="row tight">
          <span className={depth > 0 ? "quiet breaks" : "breaks"}>{field.name}</span>
          {mark?.isKey ? (
            <span className="tag accent" title="Identifies a row">
              <KeyRound className="icon" aria-hidden /> key
            </span>
          ) : null}
          {mark?.partition ? (
            <span className="tag" title="The table is partitioned by it">
              <Layers className="icon" aria-hidden /> {mark.partition}
            </span>
          ) : null}
          {mark?.sort ? (
            <span className="tag" title="The table is sorted by it">
              <SortAsc className="icon" aria-hidden /> {mark.sort}
            </span>
          ) : null}
        </span>
      </td>
      <td className="mono type" title={nameType(field.type)}>
        {typeof field.type === "string" ? field.type : field.type.type}
      </td>
      <td className="quiet">{field.required ? "not null" : ""}</td>
      <td className="breaks">
        {field.doc ?? ""}
        {standard === undefined || standard === null ? null : (
          <span className="quiet"> Default {JSON.stringify(standard)}</span>
        )}
      </td>
    </tr>
  );
}

function nameOf(metadata: TableMetadata, id: number): string {
  const find = (fields: readonly Field[], path: string): string | undefined => {
    for (const field of fields) {
      const here = path ? `${path}.${field.name}` : field.name;
      const found = field.id === id ? here : find(fieldsWithin(field.type), here);
      if (found !== undefined) return found;
    }
    return undefined;
  };
  return find(currentSchema(metadata).fields, "") ?? `column ${id}`;
}

function Partitions({ fields, metadata }: { fields: readonly PartitionField[]; metadata: TableMetadata }) {
  if (fields.length === 0) return <p className="inside quiet">Nothing: all files are in one place.</p>;
  return (
    <ol className="inside stack tight">
      {fields.map((field) => (
        <li key={field["field-id"]}>
          <span className="mono">
            {sourcesOf(field)
              .map((id) => nameOf(metadata, id))
              .join(", ")}
          </span>{" "}
          <span className="tag">{field.transform}</span>
        </li>
      ))}
    </ol>
  );
}

function Sorts({ fields, metadata }: { fields: readonly SortField[]; metadata: TableMetadata }) {
  if (fields.length === 0) return <p className="inside quiet">Nothing: rows have no order.</p>;
  return (
    <ol className="inside stack tight">
      {fields.map((field, place) => (
        <li key={place}>
          <span className="mono">
            {sourcesOf(field)
              .map((id) => nameOf(metadata, id))
              .join(", ")}
          </span>{" "}
          <span className="tag">
            {field.transform === "identity" ? "" : `${field.transform} `}
            {field.direction}, {field["null-order"].replace("-", " ")}
          </span>
        </li>
      ))}
    </ol>
  );
}
