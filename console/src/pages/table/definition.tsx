// Another definition of a table: its columns, what it is partitioned by, and its order.
import { useState } from "react";
import { buildSchema, type ColumnNode, findTroubles, nodesOf, rebaseNodes, writeClauses } from "../../api/columns.ts";
import { currentSchema, type Field, fieldsWithin, type TableMetadata } from "../../api/iceberg.ts";
import { ActDialog } from "../../parts/Act.tsx";
import {
  ArrangementEditor,
  type Arranged,
  arrangedOf,
  buildOrder,
  buildSpec,
  writeArrangement,
} from "../../parts/ArrangementEditor.tsx";
import { ChangeList } from "../../parts/ChangeList.tsx";
import { ColumnEditor } from "../../parts/ColumnEditor.tsx";
import { commandOf, historyOf } from "../acts/relation.ts";
import { commitOf, relationOf, type TableActProps } from "./relation.ts";
import { FieldTrouble } from "../../parts/refusal.tsx";

export function EditColumns({ close, ...table }: TableActProps) {
  const of = relationOf(table);
  const schema = currentSchema(table.metadata);
  const base = nodesOf(schema.fields);
  const [edited, setEdited] = useState({ nodes: base, schema });
  // Another writer's columns take the place of those that the edits began with; the edits stay.
  const isOld = edited.schema["schema-id"] !== schema["schema-id"];
  const nodes = isOld ? rebaseNodes(edited.nodes, nodesOf(edited.schema.fields), base) : edited.nodes;
  const change = (next: readonly ColumnNode[]) => setEdited({ nodes: next, schema });
  const troubles = findTroubles(nodes, base);
  const clauses = troubles.size > 0 ? [] : writeClauses(nodes, base);
  const lastId = table.metadata["last-column-id"];
  const built = troubles.size > 0 ? null : buildSchema(nodes, schema, lastId);
  return (
    <ActDialog
      title={`Columns of ${table.table.name}`}
      verb="Save"
      isWide
      isReady={clauses.length > 0}
      request={commitOf(
        table,
        [
          { type: "assert-current-schema-id", "current-schema-id": schema["schema-id"] },
          { type: "assert-last-assigned-field-id", "last-assigned-field-id": lastId },
        ],
        [
          { action: "add-schema", schema: built?.schema, "last-column-id": built?.lastId },
          { action: "set-current-schema", "schema-id": -1 },
        ],
      )}
      command={commandOf(of, "alter", clauses)}
      places={{ columns: /column|field|type|schema|default|constraint/i }}
      changed={historyOf(of)}
      close={close}
    >
      <p>
        No file is rewritten. A type may become a wider one: int to long, float to double, a decimal with more digits.
        Rows that were there before a column have its default, or NULL.
      </p>
      <ColumnEditor nodes={nodes} change={change} troubles={troubles} />
      <FieldTrouble at="columns" />
      <ChangeList of={clauses.map((clause) => ({ name: clause }))} />
    </ActDialog>
  );
}

function idsOf(fields: readonly Field[]): readonly (readonly [string, number])[] {
  return fields.flatMap((field) => [[`id${field.id}`, field.id] as const, ...idsOf(fieldsWithin(field.type))]);
}

function arrangementOf(metadata: TableMetadata) {
  const spec = metadata["partition-specs"].find((one) => one["spec-id"] === metadata["default-spec-id"]);
  const order = metadata["sort-orders"].find((one) => one["order-id"] === metadata["default-sort-order-id"]);
  return { partitions: spec?.fields ?? [], order: order?.fields ?? [] };
}

export function EditArrangement({ close, ...table }: TableActProps) {
  const of = relationOf(table);
  const { metadata } = table;
  const { fields } = currentSchema(metadata);
  const nodes = nodesOf(fields);
  const ids = new Map(idsOf(fields));
  const known = arrangementOf(metadata);
  const [partitions, setPartitions] = useState<readonly Arranged[]>(() => arrangedOf(known.partitions));
  const [order, setOrder] = useState<readonly Arranged[]>(() => arrangedOf(known.order));
  const before = {
    partitions: writeArrangement(arrangedOf(known.partitions), nodes, false) || "nothing",
    order: writeArrangement(arrangedOf(known.order), nodes, true) || "nothing",
  };
  const after = {
    partitions: writeArrangement(partitions, nodes, false) || "nothing",
    order: writeArrangement(order, nodes, true) || "nothing",
  };
  const [isDivided, isSorted] = [before.partitions !== after.partitions, before.order !== after.order];
  const requirements = [
    ...(isDivided
      ? [
          { type: "assert-default-spec-id", "default-spec-id": metadata["default-spec-id"] },
          { type: "assert-last-assigned-partition-id", "last-assigned-partition-id": metadata["last-partition-id"] },
        ]
      : []),
    ...(isSorted
      ? [{ type: "assert-default-sort-order-id", "default-sort-order-id": metadata["default-sort-order-id"] }]
      : []),
  ];
  const updates = [
    ...(isDivided
      ? [
          { action: "add-spec", spec: buildSpec(partitions, nodes, ids, known.partitions) },
          { action: "set-default-spec", "spec-id": -1 },
        ]
      : []),
    ...(isSorted
      ? [
          { action: "add-sort-order", "sort-order": buildOrder(order, ids) },
          { action: "set-default-sort-order", "sort-order-id": -1 },
        ]
      : []),
  ];
  const clauses = [
    ...(isDivided ? [`partition by ${after.partitions}`] : []),
    ...(isSorted ? [`order by ${after.order}`] : []),
  ];
  return (
    <ActDialog
      title={`Partitions and order of ${table.table.name}`}
      verb="Save"
      isWide
      isReady={clauses.length > 0}
      request={commitOf(table, requirements, updates)}
      command={commandOf(of, "alter", clauses)}
      places={{ fields: /partition|sort|transform|field|spec|order/i }}
      changed={historyOf(of)}
      close={close}
    >
      <p>They hold for files that are written from now on. Those that are there stay as they are.</p>
      <ArrangementEditor name="Partitioned by" nodes={nodes} fields={partitions} change={setPartitions} />
      <ArrangementEditor name="Sorted by" nodes={nodes} fields={order} change={setOrder} isSorted />
      <FieldTrouble at="fields" />
      <ChangeList
        of={[
          ...(isDivided ? [{ name: "partitioned by", before: before.partitions, after: after.partitions }] : []),
          ...(isSorted ? [{ name: "sorted by", before: before.order, after: after.order }] : []),
        ]}
      />
    </ActDialog>
  );
}
