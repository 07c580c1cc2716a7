// CHECK constraints of a table: what they demand, whether all rows satisfy them, and what can be done to them.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { quoteSql } from "../../api/address.ts";
import { LargeInteger } from "../../api/client.ts";
import { runQuery } from "../../api/rows.ts";
import { ActDialog } from "../../parts/Act.tsx";
import { Card } from "../../parts/Card.tsx";
import { ChangeList } from "../../parts/ChangeList.tsx";
import { TextField } from "../../parts/fields.tsx";
import { formatCount, plural } from "../../parts/format.ts";
import { Trouble } from "../../parts/Notice.tsx";
import { commandOf, historyOf, propertiesRequest } from "../acts/relation.ts";
import { commitOf, relationOf, type TableActProps } from "./relation.ts";
import type { TablePageProps } from "./Table.tsx";

const PREFIX = "constraint.";
const UNVERIFIED = "constraint-unverified.";

export function ConstraintsCard(table: TablePageProps) {
  const properties = table.metadata.properties ?? {};
  const names = Object.keys(properties).filter((key) => key.startsWith(PREFIX));
  const [open, setOpen] = useState<{ act: "add" | "drop" | "verify"; name: string } | null>(null);
  const close = () => setOpen(null);
  return (
    <Card
      title="Constraints"
      aside={
        <button type="button" className="button small" onClick={() => setOpen({ act: "add", name: "" })}>
          Add a constraint
        </button>
      }
    >
      {names.length === 0 ? (
        <p className="inside quiet">None: any row that fits the columns is taken.</p>
      ) : (
        <ul className="inside stack tight">
          {names.sort().map((key) => {
            const name = key.slice(PREFIX.length);
            const since = properties[`${UNVERIFIED}${name}`];
            return (
              <li key={name} className="row">
                <strong className="breaks">{name}</strong>
                <code className="breaks">{properties[key]}</code>
                {since === undefined ? (
                  <span className="tag good">all rows</span>
                ) : (
                  <span className="tag warn" title={`Rows of snapshot ${since} and later may violate it`}>
                    unverified
                  </span>
                )}
                {since === undefined ? null : (
                  <button type="button" className="button plain small" onClick={() => setOpen({ act: "verify", name })}>
                    Verify
                  </button>
                )}
                <button type="button" className="button plain small" onClick={() => setOpen({ act: "drop", name })}>
                  Drop
                </button>
              </li>
            );
          })}
        </ul>
      )}
      {open?.act === "add" ? <AddConstraint {...table} close={close} /> : null}
      {open?.act === "drop" ? <DropConstraint {...table} name={open.name} close={close} /> : null}
      {open?.act === "verify" ? <VerifyConstraint {...table} name={open.name} close={close} /> : null}
    </Card>
  );
}

export function AddConstraint({ close, ...table }: TableActProps) {
  const of = relationOf(table);
  const [name, setName] = useState("");
  const [condition, setCondition] = useState("");
  const before = table.metadata.properties?.[`${PREFIX}${name}`];
  const isReady = name.trim() !== "" && condition.trim() !== "" && before !== condition;
  return (
    <ActDialog
      title="Add a constraint"
      verb="Add"
      isReady={isReady}
      request={propertiesRequest(of, { [`${PREFIX}${name}`]: condition }, [], table.metadata["table-uuid"])}
      command={commandOf(of, "constraint add", [name || "NAME", condition || "CONDITION"])}
      places={{ condition: /constraint|condition|column|expression|row/i }}
      changed={historyOf(of)}
      close={close}
    >
      <p>
        The condition must be TRUE for every row, NULL isn&rsquo;t. Files that are there are judged by their statistics;
        what these don&rsquo;t prove is unverified until it is checked.
      </p>
      <TextField name="Name" value={name} change={setName} at="name" isFirst isRequired />
      <TextField
        name="Condition"
        hint="As amount > 0, or state IN ('open', 'paid') OR state IS NULL"
        value={condition}
        change={setCondition}
        at="condition"
        isMono
        isRequired
      />
      <ChangeList of={isReady ? [{ name: `constraint ${name}`, before, after: condition }] : []} />
    </ActDialog>
  );
}

interface NamedProps extends TableActProps {
  readonly name: string;
}

function DropConstraint({ close, name, ...table }: NamedProps) {
  const of = relationOf(table);
  const key = `${PREFIX}${name}`;
  return (
    <ActDialog
      title={`Drop the constraint ${name}`}
      verb="Drop"
      isDangerous
      request={propertiesRequest(of, {}, [key], table.metadata["table-uuid"])}
      command={commandOf(of, "constraint drop", [name])}
      changed={historyOf(of)}
      close={close}
    >
      <p>Rows that violate it are taken from then on. Those that are there stay.</p>
      <ChangeList of={[{ name: `constraint ${name}`, before: table.metadata.properties?.[key] }]} />
    </ActDialog>
  );
}

/** The condition, which is Spark's SQL of what means the same in DuckDB, in DuckDB's spelling. */
export function writeCondition(spark: string): string {
  return spark.replace(/'(?:\\.|''|[^'\\])*'|`(?:[^`]|``)*`|<=>/g, (token) => {
    if (token === "<=>") return "IS NOT DISTINCT FROM";
    const inside = token.slice(1, -1);
    if (token.startsWith("`")) return `"${inside.replaceAll("``", "`").replaceAll('"', '""')}"`;
    return `'${inside.replace(/\\(.)/g, "$1").replaceAll("''", "'").replaceAll("'", "''")}'`;
  });
}

/** Counts the rows of the current snapshot that violate the constraint, and marks it as verified as of that snapshot. */
function VerifyConstraint({ close, name, ...table }: NamedProps) {
  const of = relationOf(table);
  const { metadata, warehouse } = table;
  const snapshot = metadata["current-snapshot-id"];
  const condition = writeCondition(metadata.properties?.[`${PREFIX}${name}`] ?? "");
  const from = `${quoteSql(of.levels)}${snapshot === undefined ? "" : ` AT (VERSION => '${snapshot}')`}`;
  const sql = `SELECT count(*) AS rows, count(*) FILTER (WHERE (${condition}) IS NOT TRUE) AS violating FROM ${from}`;
  const query = useQuery({
    queryKey: [warehouse, "violations", sql],
    queryFn: async ({ signal }) => {
      const { columns } = await runQuery(warehouse, { sql, limit: 1, signal });
      return { rows: Number(columns[0]?.values.at(0)), violating: Number(columns[1]?.values.at(0)) };
    },
    retry: false,
    staleTime: 0,
  });
  const key = `${UNVERIFIED}${name}`;
  const isSound = query.data?.violating === 0;
  const requirement = {
    type: "assert-ref-snapshot-id",
    ref: "main",
    "snapshot-id": snapshot === undefined ? null : new LargeInteger(snapshot),
  };
  return (
    <ActDialog
      title={`Verify the constraint ${name}`}
      verb="Mark as verified"
      isReady={isSound}
      request={commitOf(table, [requirement], [{ action: "remove-properties", removals: [key] }])}
      command={commandOf(of, "props unset", [key])}
      changed={historyOf(of)}
      close={close}
    >
      <p>
        A query counts the rows that violate it. If there are none, and no writer was faster, it holds for all rows of
        the table.
      </p>
      {query.error ? (
        <Trouble error={query.error} />
      ) : query.data ? (
        <p className={isSound ? "banner good" : "banner bad"}>
          {isSound
            ? `None of ${plural(query.data.rows, "row")} violates it.`
            : `${formatCount(query.data.violating)} of ${plural(query.data.rows, "row")} violate it.`}
        </p>
      ) : (
        <p className="banner">Counting…</p>
      )}
      <ChangeList of={isSound ? [{ name, before: "unverified", after: "holds for all rows" }] : []} />
    </ActDialog>
  );
}
