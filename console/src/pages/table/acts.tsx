// What can be done to a table. Each act says first what it will do.
import { useNavigate } from "@tanstack/react-router";
import { type ComponentType, useState } from "react";
import { apiNamespace, joinName, splitName } from "../../api/address.ts";
import { ActDialog, DryRun } from "../../parts/Act.tsx";
import { ChangeList } from "../../parts/ChangeList.tsx";
import { commandName } from "../../parts/command.ts";
import { CheckField, TextField } from "../../parts/fields.tsx";
import { formatCount, plural } from "../../parts/format.ts";
import { Menu } from "../../parts/Menu.tsx";
import { Drop, Rename } from "../acts/names.tsx";
import { EditComment, EditProperties, isProtected, Protect } from "../acts/properties.tsx";
import { commandOf, historyOf, openRelation } from "../acts/relation.ts";
import { AddConstraint } from "./constraints.tsx";
import { EditArrangement, EditColumns } from "./definition.tsx";
import { MakeReference } from "./references.tsx";
import { relationOf, requestBelow, type TableActProps } from "./relation.ts";
import { Restore } from "./Restore.tsx";
import { StateField } from "./StateField.tsx";
import type { TablePageProps } from "./Table.tsx";
import { FieldTrouble } from "../../parts/refusal.tsx";

const described = ({ metadata, close, ...table }: TableActProps) => ({
  of: relationOf({ metadata, ...table }),
  properties: metadata.properties ?? {},
  uuid: metadata["table-uuid"],
  close,
});

const ACTS: Readonly<Record<string, ComponentType<TableActProps>>> = {
  "Edit the comment": (table) => <EditComment {...described(table)} />,
  "Edit columns": EditColumns,
  "Edit partitions and order": EditArrangement,
  "Edit properties": (table) => <EditProperties {...described(table)} />,
  "Add a constraint": AddConstraint,
  "Make a branch or tag": MakeReference,
  "Write rows to files": Flush,
  Clone,
  Restore,
  "Expire snapshots": Expire,
  Protect: (table) => <Protect {...described(table)} />,
  Rename: ({ close, ...table }) => <Rename of={relationOf(table)} close={close} />,
  Drop: ({ close, ...table }) => <Drop of={relationOf(table)} close={close} />,
};

export function TableActs(table: TablePageProps) {
  const [open, setOpen] = useState<string | null>(null);
  const Act = open === null ? undefined : ACTS[open];
  const isKept = isProtected(table.metadata.properties ?? {});
  return (
    <>
      <Menu
        name="Change"
        items={Object.keys(ACTS).map((name) => ({
          name: name === "Protect" && isKept ? "Lift the protection" : name,
          isDangerous: name === "Drop",
          choose: () => setOpen(name),
        }))}
      />
      {Act ? <Act {...table} close={() => setOpen(null)} /> : null}
    </>
  );
}

function Flush({ close, ...table }: TableActProps) {
  const of = relationOf(table);
  return (
    <ActDialog
      title="Write rows to files"
      verb="Write"
      request={requestBelow(table, "/rows/flush")}
      command={commandOf(of, "flush")}
      changed={historyOf(of)}
      close={close}
    >
      <p>
        Rows and deletes that are still in Postgres go to Parquet files. Readers see the same rows before and after. If
        none are there, nothing is written.
      </p>
    </ActDialog>
  );
}

const DAY_MS = 86_400_000;

function Expire({ close, ...table }: TableActProps) {
  const of = relationOf(table);
  const [days, setDays] = useState(30);
  const [now] = useState(Date.now());
  const body = { "older-than-ms": now - days * DAY_MS, "retain-last": 1 };
  return (
    <ActDialog
      title="Expire snapshots"
      verb="Expire"
      isDangerous
      request={requestBelow(table, "/expire", body)}
      command={commandOf(of, "expire", [], { "older-than": `${days}d` })}
      changed={historyOf(of)}
      close={close}
    >
      <p>
        Snapshots that are older leave the list for good, but for those of branches and tags. Branches and tags go that
        are older than they say themselves. Files that nothing needs any more go with the next cleanup. The rows of
        today stay.
      </p>
      <label className="field">
        <span>Older than, in days</span>
        <input
          type="number"
          min={0}
          max={36_500}
          value={days}
          onChange={({ target }) => setDays(Math.max(0, Math.min(36_500, Math.round(target.valueAsNumber || 0))))}
        />
      </label>
      <DryRun<{ snapshots: number; left: number; refs: readonly string[] }>
        request={requestBelow(table, "/expire", { ...body, "dry-run": true })}
      >
        {({ snapshots, left, refs }) => (
          <p className="banner good">
            {plural(snapshots, "snapshot")} would go, {formatCount(left)} stay.
            {refs.length > 0 ? ` ${refs.join(", ")} would go, too.` : ""}
          </p>
        )}
      </DryRun>
    </ActDialog>
  );
}

function Clone({ close, ...table }: TableActProps) {
  const navigate = useNavigate();
  const of = relationOf(table);
  const [text, setText] = useState(joinName([...table.table.namespace, `${table.table.name}_clone`]));
  const [at, setAt] = useState("");
  const [isWhole, setWhole] = useState(false);
  const levels = splitName(text.trim());
  const isReady = levels.length > 1 && levels.every((level) => level !== "");
  return (
    <ActDialog
      title={`Clone ${table.table.name}`}
      verb="Clone"
      isReady={isReady}
      request={{
        method: "POST",
        path: "/v1/namespaces/{namespace}/clone",
        warehouse: of.warehouse,
        values: { namespace: apiNamespace(levels.slice(0, -1)) },
        body: {
          name: levels.at(-1) ?? "",
          source: table.table,
          ...(at ? { at } : {}),
          "with-history": isWhole,
        },
      }}
      command={commandOf(of, "clone", [commandName(levels)], { at, "with-history": isWhole })}
      places={{ at: /snapshot|time|version|state/i, name: /exist|namespace|name/i }}
      changed={historyOf(of)}
      close={close}
      done={() => openRelation(navigate, { ...of, levels })}
    >
      <p>
        The new table reads the same files; none is copied. Both change independently. A file that both need goes with
        the last of them.
      </p>
      <TextField
        name="Name of the clone, with its namespace"
        hint="A dot inside of a name has a tilde before it."
        value={text}
        change={setText}
        isMono
        at="name"
        isFirst
        isRequired
      />
      <StateField name="State" metadata={table.metadata} value={at} choose={setAt} isNowOffered />
      <FieldTrouble at="at" />
      <CheckField
        name="With its history"
        hint="All snapshots, branches and tags, not one alone."
        isOn={isWhole}
        change={setWhole}
      />
      <ChangeList of={isReady ? [{ name: levels.join("."), after: `a clone of ${of.levels.join(".")}` }] : []} />
    </ActDialog>
  );
}
