// New namespaces and tables.
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { apiNamespace, joinName, splitName } from "../../api/address.ts";
import { buildSchema, type ColumnNode, findTroubles, newNode, writeColumns } from "../../api/columns.ts";
import { ActDialog } from "../../parts/Act.tsx";
import {
  ArrangementEditor,
  type Arranged,
  buildOrder,
  buildSpec,
  writeArrangement,
} from "../../parts/ArrangementEditor.tsx";
import { ChangeList } from "../../parts/ChangeList.tsx";
import { ColumnEditor } from "../../parts/ColumnEditor.tsx";
import { commandName, writeCommand } from "../../parts/command.ts";
import { AreaField, ChoiceField, DOTS, NameField, TextField } from "../../parts/fields.tsx";
import { openRelation } from "./relation.ts";
import { FieldTrouble } from "../../parts/refusal.tsx";

export interface CreateProps {
  readonly warehouse: string;
  /** The namespace that it is made in, to begin with. */
  readonly inside: readonly string[];
  readonly close: () => void;
}

export function CreateNamespace({ warehouse, inside, close }: CreateProps) {
  const navigate = useNavigate();
  const [text, setText] = useState(inside.length > 0 ? `${joinName(inside)}.` : "");
  const [comment, setComment] = useState("");
  const levels = splitName(text.trim());
  const isReady = levels.every((level) => level !== "");
  const name = commandName(levels);
  const created = writeCommand("create namespace", warehouse, [name]);
  return (
    <ActDialog
      title="New namespace"
      verb="Create"
      isReady={isReady}
      request={{
        method: "POST",
        path: "/v1/namespaces",
        warehouse,
        body: { namespace: levels, properties: comment ? { comment } : {} },
      }}
      command={comment ? `${created} && ${writeCommand("comment", warehouse, [name, comment])}` : created}
      places={{ name: /namespace|name|exist/i }}
      close={close}
      done={() => openRelation(navigate, { warehouse, kind: "namespace", levels })}
    >
      <p>A namespace holds tables, views and other namespaces. DuckDB sees it as a schema.</p>
      <TextField
        name="Name"
        hint={`As sales, or sales.eu in sales. ${DOTS}`}
        value={text}
        change={setText}
        isMono
        isFirst
        at="name"
      />
      <TextField name="Comment" value={comment} change={setComment} />
    </ActDialog>
  );
}

export interface FirstColumn {
  readonly name: string;
  readonly type: string;
}

/** columns: those that it has to begin with, as of the result of a query. */
export function CreateTable({ warehouse, inside, close, columns }: CreateProps & { columns?: readonly FirstColumn[] }) {
  const navigate = useNavigate();
  const [text, setText] = useState(inside.length > 0 ? `${joinName(inside)}.` : "");
  const [comment, setComment] = useState("");
  const [format, setFormat] = useState<"1" | "2" | "3">("2");
  const [nodes, setNodes] = useState<readonly ColumnNode[]>(() =>
    (columns ?? [{ name: "id", type: "long" }]).map(({ name, type }) => newNode(name, type)),
  );
  const [partitions, setPartitions] = useState<readonly Arranged[]>([]);
  const [order, setOrder] = useState<readonly Arranged[]>([]);
  const [properties, setProperties] = useState("");
  const levels = splitName(text.trim());
  const pairs = pairsOf(properties);
  const troubles = findTroubles(nodes);
  const isNamed = levels.length > 1 && levels.every((level) => level !== "");
  const isReady = isNamed && nodes.length > 0 && troubles.size === 0 && pairs !== null;
  const all = {
    ...(format === "2" ? {} : { "format-version": format }),
    ...(comment ? { comment } : {}),
    ...(pairs ?? {}),
  };
  const table = isReady ? describeTable(nodes, partitions, order) : null;
  return (
    <ActDialog
      title="New table"
      verb="Create"
      isWide
      isReady={isReady}
      request={{
        method: "POST",
        path: "/v1/namespaces/{namespace}/tables",
        warehouse,
        values: { namespace: apiNamespace(levels.slice(0, -1)) },
        body: { name: levels.at(-1) ?? "", ...table?.body, properties: all },
      }}
      command={writeCommand("create table", warehouse, [commandName(levels), table?.columns ?? "id long"], {
        "partition-by": table?.partitions,
        "order-by": table?.order,
        prop: Object.entries(all).map(([name, value]) => `${name}=${value}`),
      })}
      places={{
        columns: /column|field|type|schema|default|partition|sort/i,
        name: /exist|namespace|name/i,
        properties: /propert|format-version/i,
      }}
      close={close}
      done={() => openRelation(navigate, { warehouse, kind: "table", levels })}
    >
      <div className="row">
        <NameField value={text} change={setText} />
        <TextField name="Comment" value={comment} change={setComment} />
        <ChoiceField
          name="Format"
          value={format}
          options={[
            ["1", "Iceberg v1"],
            ["2", "Iceberg v2"],
            ["3", "Iceberg v3"],
          ]}
          change={setFormat}
        />
      </div>
      <h3>Columns</h3>
      <ColumnEditor nodes={nodes} change={setNodes} troubles={troubles} />
      <FieldTrouble at="columns" />
      <div className="columns">
        <ArrangementEditor name="Partitioned by" nodes={nodes} fields={partitions} change={setPartitions} />
        <ArrangementEditor name="Sorted by" nodes={nodes} fields={order} change={setOrder} isSorted />
      </div>
      <AreaField
        name="Properties"
        hint={pairs === null ? <span className="field-trouble">Each line is name=value.</span> : undefined}
        placeholder="name=value, one a line"
        rows={2}
        value={properties}
        change={setProperties}
        at="properties"
        isMono
      />
      {table ? (
        <ChangeList
          of={[
            { name: levels.join("."), after: `an empty table: ${table.columns}` },
            ...(table.partitions ? [{ name: "partitioned by", after: table.partitions }] : []),
            ...(table.order ? [{ name: "sorted by", after: table.order }] : []),
            ...Object.entries(all).map(([name, value]) => ({ name, after: value })),
          ]}
        />
      ) : null}
    </ActDialog>
  );
}

/** Only those arrangements whose column is still there. */
function describeTable(nodes: readonly ColumnNode[], partitions: readonly Arranged[], order: readonly Arranged[]) {
  const { schema, ids } = buildSchema(nodes);
  const kept = (fields: readonly Arranged[]) => fields.filter(({ column }) => ids.has(column));
  const [by, sorted] = [kept(partitions), kept(order)];
  return {
    body: {
      schema,
      ...(by.length > 0 ? { "partition-spec": buildSpec(by, nodes, ids) } : {}),
      ...(sorted.length > 0 ? { "write-order": buildOrder(sorted, ids) } : {}),
    },
    columns: writeColumns(nodes),
    partitions: writeArrangement(by, nodes, false),
    order: writeArrangement(sorted, nodes, true),
  };
}

/** The lines of a text as properties; null if one is none. */
function pairsOf(text: string): Readonly<Record<string, string>> | null {
  const pairs: Record<string, string> = {};
  for (const line of text.split("\n")) {
    if (!line.trim()) continue;
    const at = line.indexOf("=");
    if (at < 1) return null;
    pairs[line.slice(0, at).trim()] = line.slice(at + 1);
  }
  return pairs;
}
