// Gives privileges, and takes them.
import { useState } from "react";
import { PRIVILEGES } from "../../api/governance.ts";
import { describeObject, readObject, writeObject } from "../../api/objects.ts";
import { ActDialog } from "../../parts/Act.tsx";
import { writeCommand } from "../../parts/command.ts";
import { TextField } from "../../parts/fields.tsx";
import { FieldTrouble } from "../../parts/refusal.tsx";
import type { GrantRow } from "./Grants.tsx";
import { ObjectField, usePrincipalNames } from "./objects.tsx";

const WHAT: Readonly<Record<string, string>> = {
  select: "read",
  insert: "add rows",
  update: "replace rows",
  delete: "delete rows",
  create: "make tables in it",
  drop: "drop and undrop",
  alter: "change columns, properties",
  "manage-grants": "grant what one has",
  ownership: "all of these",
};

function PrivilegeField({
  of = PRIVILEGES,
  value,
  change,
}: {
  of?: readonly string[];
  value: readonly string[];
  change: (value: readonly string[]) => void;
}) {
  return (
    <fieldset className="checks">
      <legend>Privileges</legend>
      {of.map((privilege) => (
        <label key={privilege} className="check">
          <input
            type="checkbox"
            checked={value.includes(privilege)}
            onChange={({ target }) =>
              change(of.filter((one) => (one === privilege ? target.checked : value.includes(one))))
            }
          />
          <span>
            {privilege} <span className="hint">{WHAT[privilege]}</span>
          </span>
        </label>
      ))}
    </fieldset>
  );
}

export function Give({
  warehouse,
  principal: first,
  on: firstOn,
  close,
}: {
  warehouse: string;
  principal: string;
  on: string;
  close: () => void;
}) {
  const [principal, setPrincipal] = useState(first);
  const [on, setOn] = useState(firstOn);
  const [privileges, setPrivileges] = useState<readonly string[]>(["select"]);
  const offered = usePrincipalNames(warehouse);
  const object = readObject(on);
  const what = object?.kind === "warehouse" ? "everything in the warehouse" : `${on} and all below it`;
  return (
    <ActDialog
      title="Grant"
      verb="Grant"
      isReady={principal !== "" && object !== null && privileges.length > 0}
      request={{
        method: "POST",
        path: "/management/v1/grants",
        warehouse,
        body: { grant: [{ principal, privileges, object: object ? describeObject(object) : {} }] },
      }}
      command={writeCommand("grant", warehouse, [principal || "PRINCIPAL", privileges.join(","), on || "warehouse"])}
      places={{
        principal: /principal/i,
        on: /there is no (?:namespace|table|view)|does not exist|object/i,
        privileges: /privilege/i,
      }}
      close={close}
    >
      <p>
        {principal && object && privileges.length > 0
          ? `${principal} may ${privileges.join(", ")} on ${object.kind === "table" || object.kind === "view" ? on : what}, at once.`
          : "A grant on a namespace or the warehouse holds for all below it, and for what comes later."}
      </p>
      <TextField
        name="To whom"
        value={principal}
        change={setPrincipal}
        offered={offered}
        at="principal"
        isFirst
        isRequired
      />
      <ObjectField warehouse={warehouse} value={on} change={setOn} at="on" isRequired />
      <PrivilegeField value={privileges} change={setPrivileges} />
      <FieldTrouble at="privileges" />
    </ActDialog>
  );
}

export function Take({ warehouse, row, close }: { warehouse: string; row: GrantRow; close: () => void }) {
  const [privileges, setPrivileges] = useState(row.privileges);
  const object = row.object;
  if (!object) return null;
  const on = writeObject(object);
  return (
    <ActDialog
      title={`Revoke what ${row.principal} has on ${on}`}
      verb="Revoke"
      isDangerous
      isReady={privileges.length > 0}
      request={{
        method: "POST",
        path: "/management/v1/grants",
        warehouse,
        body: { revoke: [{ principal: row.principal, privileges, object: describeObject(object) }] },
      }}
      command={writeCommand("revoke", warehouse, [row.principal, privileges.join(","), on])}
      close={close}
    >
      <p>
        {row.principal} loses it at once for all that changes something, and within a second for reads. What other
        grants give stays.
        {row.principalKind === "group" || row.principalKind === "role" ? " So do all who have it by membership." : ""}
      </p>
      <PrivilegeField of={row.privileges} value={privileges} change={setPrivileges} />
    </ActDialog>
  );
}
