// A view's query: new or another one, by dialect, checked by the server before it is kept.
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { apiNamespace, joinName, splitName } from "../../api/address.ts";
import { nameType, type Schema, type ViewMetadata } from "../../api/iceberg.ts";
import { findColumns } from "../../api/rows.ts";
import { ActDialog } from "../../parts/Act.tsx";
import { ChangeList, compareRecords } from "../../parts/ChangeList.tsx";
import { commandName, writeCommand } from "../../parts/command.ts";
import { AreaField, NameField } from "../../parts/fields.tsx";
import { Trouble } from "../../parts/Notice.tsx";
import type { CreateProps } from "./create.tsx";
import { commandOf, historyOf, openRelation, type Relation, requestOf } from "./relation.ts";

interface Query {
  readonly duckdb: string;
  readonly spark: string;
}

/** A query that is typed, and its columns once the server has checked it. */
function useChecked(first: Query, warehouse: string, namespace: readonly string[]) {
  const [typed, setTyped] = useState(first);
  const [asked, setAsked] = useState(first.duckdb);
  const sql = typed.duckdb.trim().replace(/;\s*$/, "");
  const check = useQuery({
    queryKey: [warehouse, "columns of a query", asked, namespace],
    queryFn: ({ signal }) => findColumns(warehouse, asked, namespace, signal),
    enabled: asked !== "",
    retry: false,
    staleTime: 0,
  });
  const columns = asked === sql && check.data && !check.error ? check.data : null;
  return {
    typed: { ...typed, duckdb: sql },
    shown: typed,
    setTyped,
    ask: () => setAsked(sql),
    check,
    columns,
    asked,
    sql,
  };
}

function QueryFields({ of }: { of: ReturnType<typeof useChecked> }) {
  const { shown, setTyped, ask, check, columns, asked, sql } = of;
  return (
    <>
      <AreaField
        name="Query, in DuckDB’s SQL"
        hint="Names without a namespace are those of the view’s."
        rows={6}
        value={shown.duckdb}
        change={(duckdb) => setTyped({ ...shown, duckdb })}
        leave={ask}
        at="sql"
        isMono
        isRequired
      />
      <div className="row">
        <button type="button" className="button small" disabled={sql === ""} onClick={ask}>
          Check
        </button>
        <span className="quiet small" role="status">
          {columns
            ? `It has ${columns.fields.length === 1 ? "one column" : `${columns.fields.length} columns`}.`
            : check.isFetching
              ? "Checking…"
              : ""}
        </span>
      </div>
      {check.error && asked === sql ? <Trouble error={check.error} /> : null}
      <AreaField
        name="The same in Spark’s SQL, if engines with it are to read the view"
        rows={3}
        value={shown.spark}
        change={(spark) => setTyped({ ...shown, spark })}
        isMono
      />
    </>
  );
}

function versionOf(query: Query, namespace: readonly string[], schemaId: number, ms: number): object {
  const texts = [["duckdb", query.duckdb] as const, ...(query.spark.trim() ? [["spark", query.spark] as const] : [])];
  return {
    "version-id": 1,
    "schema-id": schemaId,
    "timestamp-ms": ms,
    summary: {},
    "default-namespace": namespace,
    representations: texts.map(([dialect, sql]) => ({ type: "sql", sql, dialect })),
  };
}

function writeSchema({ fields }: Schema): string {
  return fields.map(({ name, type }) => `${name} ${nameType(type)}`).join(", ");
}

export function CreateView({ warehouse, inside, close, sql = "" }: CreateProps & { sql?: string }) {
  const navigate = useNavigate();
  const [text, setText] = useState(inside.length > 0 ? `${joinName(inside)}.` : "");
  const [ms] = useState(() => Date.now());
  const levels = splitName(text.trim());
  const namespace = levels.slice(0, -1);
  const checked = useChecked({ duckdb: sql, spark: "" }, warehouse, namespace);
  const { typed, columns } = checked;
  const isNamed = levels.length > 1 && levels.every((level) => level !== "");
  return (
    <ActDialog
      title="New view"
      verb="Create"
      isWide
      isReady={isNamed && columns !== null}
      request={{
        method: "POST",
        path: "/v1/namespaces/{namespace}/views",
        warehouse,
        values: { namespace: apiNamespace(namespace) },
        body: {
          name: levels.at(-1) ?? "",
          schema: columns ?? {},
          "view-version": versionOf(typed, namespace, 0, ms),
          properties: {},
        },
      }}
      command={writeCommand("create view", warehouse, [commandName(levels), typed.duckdb], {
        spark: typed.spark.trim() ? typed.spark : undefined,
      })}
      places={{ name: /exist|namespace|name/i, sql: /sql|query|dialect|schema/i }}
      close={close}
      done={() => openRelation(navigate, { warehouse, kind: "view", levels })}
    >
      <NameField value={text} change={setText} />
      <QueryFields of={checked} />
      <ChangeList
        of={isNamed && columns ? [{ name: levels.join("."), after: `a view: ${writeSchema(columns)}` }] : []}
        nothing="The query is checked before a view is made of it."
      />
    </ActDialog>
  );
}

export function EditQuery({ of, metadata, close }: { of: Relation; metadata: ViewMetadata; close: () => void }) {
  const [ms] = useState(() => Date.now());
  const version = metadata.versions.find((one) => one["version-id"] === metadata["current-version-id"]);
  const [before] = useState<Query>(() => ({
    duckdb: version?.representations.find(({ dialect }) => dialect === "duckdb")?.sql ?? "",
    spark: version?.representations.find(({ dialect }) => dialect === "spark")?.sql ?? "",
  }));
  const namespace = version?.["default-namespace"] ?? of.levels.slice(0, -1);
  const checked = useChecked(before, of.warehouse, namespace);
  const { typed, columns } = checked;
  const record = ({ duckdb, spark }: Query) => ({ ...(duckdb ? { duckdb } : {}), ...(spark.trim() ? { spark } : {}) });
  const changes = compareRecords(record(before), record(typed));
  return (
    <ActDialog
      title={`Query of ${of.levels.at(-1) ?? ""}`}
      verb="Save"
      isWide
      isReady={columns !== null && changes.length > 0}
      request={requestOf(of, "POST", {
        requirements: [{ type: "assert-view-uuid", uuid: metadata["view-uuid"] }],
        updates: [
          { action: "add-schema", schema: columns ?? {} },
          { action: "add-view-version", "view-version": versionOf(typed, namespace, -1, ms) },
          { action: "set-current-view-version", "view-version-id": -1 },
        ],
      })}
      command={commandOf(of, "create view", [typed.duckdb], {
        spark: typed.spark.trim() ? typed.spark : undefined,
        replace: true,
      })}
      places={{ sql: /sql|query|dialect|schema|version/i }}
      changed={historyOf(of)}
      close={close}
    >
      <p>The view gets another version. Its older ones stay listed.</p>
      <QueryFields of={checked} />
      <ChangeList of={columns ? changes : []} nothing="It is checked before it is kept." />
    </ActDialog>
  );
}
