// Adds and drops policies, and tags columns.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { type ColumnTag, columnsQuery, type Policy } from "../../api/governance.ts";
import { readObject, writeObject } from "../../api/objects.ts";
import { ActDialog } from "../../parts/Act.tsx";
import { writeCommand } from "../../parts/command.ts";
import { ChoiceField, splitWords, SureField, TextField } from "../../parts/fields.tsx";
import { ObjectField, usePrincipalNames } from "./objects.tsx";
import { MASKS } from "./Seen.tsx";

interface ActProps {
  readonly warehouse: string;
  readonly close: () => void;
}

const KINDS = [
  ["rows", "Row filter"],
  ["column", "Mask of a column"],
  ["tag", "Mask of a tag"],
] as const;

/** Names that are divided by commas: they may have spaces. */
function splitNames(text: string): readonly string[] {
  return text
    .split(",")
    .map((name) => name.trim())
    .filter(Boolean);
}

export function AddPolicy({ warehouse, on: first, close }: ActProps & { on: string }) {
  const [kind, setKind] = useState<(typeof KINDS)[number][0]>("rows");
  const [name, setName] = useState("");
  const [on, setOn] = useState(first);
  const [condition, setCondition] = useState("");
  const [column, setColumn] = useState("");
  const [tag, setTag] = useState("");
  const [mask, setMask] = useState<(typeof MASKS)[number][0]>("replace-with-null");
  const [to, setTo] = useState("");
  const [exempt, setExempt] = useState("");
  const offered = usePrincipalNames(warehouse);
  const table = readObject(on);
  const columns = useQuery(columnsQuery(warehouse, table)).data ?? [];
  const place = table?.kind === "table" ? { namespace: table.namespace, name: table.name } : null;
  const what = {
    rows: { table: place, condition },
    column: { table: place, column, mask },
    tag: { tag, mask },
  }[kind];
  const isWhole = { rows: place && condition, column: place && column, tag }[kind];
  const options = { rows: { where: condition }, column: { mask, column }, tag: { tag, mask } }[kind];
  const people = { to: splitNames(to), exempt: splitNames(exempt) };
  return (
    <ActDialog
      title="Add a policy"
      verb="Add"
      isReady={name !== "" && Boolean(isWhole)}
      request={{ method: "POST", path: "/management/v1/policies", warehouse, body: { name, ...what, ...people } }}
      command={writeCommand("policy add", warehouse, [name || "NAME", ...(kind === "tag" ? [] : [on || "TABLE"])], {
        ...options,
        to: people.to.join(","),
        exempt: people.exempt.join(","),
      })}
      places={{
        tag: /\btag\b/i,
        to: /principal/i,
        on: /table|files/i,
        name: /policy|already/i,
        column: /column|mask/i,
        condition: /condition|filter|expression|where/i,
      }}
      close={close}
    >
      <p>
        {kind === "rows"
          ? "Whom it is for sees the rows that fit the condition, and no others."
          : "Whom it is for sees what the mask leaves of the values."}{" "}
        Keys for the table&rsquo;s files are given to them no longer: they read by queries of the server. Administrators
        are no exception. It counts at once here, and within two seconds on other workers.
      </p>
      <div className="row top">
        <ChoiceField name="What" value={kind} options={KINDS} change={setKind} />
        <TextField name="Name" value={name} change={setName} at="name" isFirst isRequired />
      </div>
      {kind === "tag" ? (
        <TextField name="Tag" placeholder="pii" value={tag} change={setTag} at="tag" isRequired />
      ) : (
        <ObjectField
          warehouse={warehouse}
          name="Table"
          value={on}
          change={setOn}
          kinds={["table"]}
          at="on"
          isRequired
        />
      )}
      {kind === "rows" ? (
        <TextField
          name="Rows that are shown"
          placeholder="region = 'eu'"
          hint="Comparisons of columns with constants, IN, BETWEEN, IS NULL, LIKE 'a%', joined by AND, OR, NOT."
          value={condition}
          change={setCondition}
          at="condition"
          isRequired
          isMono
        />
      ) : (
        <div className="row top">
          {kind === "column" ? (
            <TextField
              name="Column"
              value={column}
              change={setColumn}
              offered={columns}
              at="column"
              isMono
              isRequired
            />
          ) : null}
          <ChoiceField
            name="Mask"
            value={mask}
            options={MASKS.map(([one, leaves]) => [one, `${one}: ${leaves}`] as const)}
            change={setMask}
          />
        </div>
      )}
      <div className="row top">
        <TextField
          name="For"
          hint="Divided by commas. None: everyone."
          value={to}
          change={setTo}
          offered={offered}
          at="to"
        />
        <TextField name="Not for" value={exempt} change={setExempt} offered={offered} />
      </div>
    </ActDialog>
  );
}

export function DropPolicy({ warehouse, policy, close }: ActProps & { policy: Policy }) {
  const [typed, setTyped] = useState("");
  const on = policy.table ? writeObject({ kind: "table", ...policy.table }) : "";
  return (
    <ActDialog
      title={`Drop the policy ${policy.name}`}
      verb="Drop"
      isDangerous
      isReady={typed === policy.name}
      request={{
        method: "DELETE",
        path: "/management/v1/policies/{policy_id}",
        warehouse,
        values: { policy_id: policy.id },
      }}
      command={writeCommand("policy drop", warehouse, [policy.name], { on })}
      close={close}
    >
      <p>What it hid is shown again to all who may read the table, unless another policy hides it.</p>
      <SureField word={policy.name} value={typed} change={setTyped} />
    </ActDialog>
  );
}

export function TagColumn({ warehouse, on: first, close }: ActProps & { on: string }) {
  const [tag, setTag] = useState("");
  const [on, setOn] = useState(first);
  const [column, setColumn] = useState("");
  const table = readObject(on);
  const columns = useQuery(columnsQuery(warehouse, table)).data ?? [];
  const place = { namespace: table?.namespace ?? [], name: table?.name ?? "" };
  return (
    <ActDialog
      title="Tag a column"
      verb="Tag it"
      isReady={tag !== "" && column !== "" && table?.kind === "table" && splitWords(tag).length === 1}
      request={{
        method: "POST",
        path: "/management/v1/column-tags",
        warehouse,
        body: { give: [{ tag, table: place, column }] },
      }}
      command={writeCommand("policy tag", warehouse, [tag || "TAG", on || "TABLE", column || "COLUMN"])}
      places={{ tag: /\btag\b/i, on: /table/i, column: /column/i }}
      close={close}
    >
      <p>Masks of the tag count for the column from now on.</p>
      <TextField name="Tag" placeholder="pii" value={tag} change={setTag} at="tag" isFirst isRequired />
      <ObjectField warehouse={warehouse} name="Table" value={on} change={setOn} kinds={["table"]} at="on" isRequired />
      <TextField name="Column" value={column} change={setColumn} offered={columns} at="column" isMono isRequired />
    </ActDialog>
  );
}

export function UntagColumn({ warehouse, tagged, close }: ActProps & { tagged: ColumnTag }) {
  const { tag, table, column } = tagged;
  const on = writeObject({ kind: "table", ...table });
  return (
    <ActDialog
      title={`Take ${tag} from ${column}`}
      verb="Take it away"
      isDangerous
      request={{
        method: "POST",
        path: "/management/v1/column-tags",
        warehouse,
        body: { take: [{ tag, table, column }] },
      }}
      command={writeCommand("policy untag", warehouse, [tag, on, column])}
      close={close}
    >
      <p>Masks of the tag count for the column no longer: its values are shown again.</p>
    </ActDialog>
  );
}
