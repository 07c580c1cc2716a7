// Branches and tags: made, moved forward, kept for a time, dropped.
import { useState } from "react";
import { LargeInteger } from "../../api/client.ts";
import type { Reference, TableMetadata } from "../../api/iceberg.ts";
import { ActDialog } from "../../parts/Act.tsx";
import { ChangeList } from "../../parts/ChangeList.tsx";
import { ChoiceField, SureField, TextField } from "../../parts/fields.tsx";
import { commandOf, historyOf } from "../acts/relation.ts";
import { commitOf, relationOf, type TableActProps } from "./relation.ts";
import { StateField } from "./StateField.tsx";
import { FieldTrouble } from "../../parts/refusal.tsx";

const KINDS = [
  ["tag", "tag"],
  ["branch", "branch"],
] as const;

function assertAt(name: string, reference: Reference | null): object {
  const id = reference === null ? null : new LargeInteger(reference["snapshot-id"]);
  return { type: "assert-ref-snapshot-id", ref: name, "snapshot-id": id };
}

export function MakeReference({ close, ...table }: TableActProps) {
  const of = relationOf(table);
  const [name, setName] = useState("");
  const [type, setType] = useState<"branch" | "tag">("tag");
  const [id, setId] = useState(String(table.metadata["current-snapshot-id"] ?? ""));
  const isTaken = name in (table.metadata.refs ?? {});
  const isReady = name.trim() !== "" && /^-?\d+$/.test(id) && !isTaken;
  const snapshotId = isReady ? new LargeInteger(id) : 0;
  return (
    <ActDialog
      title="Make a branch or tag"
      verb="Make it"
      isReady={isReady}
      request={commitOf(
        table,
        [assertAt(name, null)],
        [{ action: "set-snapshot-ref", "ref-name": name, type, "snapshot-id": snapshotId }],
      )}
      command={commandOf(of, "refs create", [name || "NAME"], { at: id, tag: type === "tag" })}
      places={{ name: /ref|branch|tag|name/i }}
      changed={historyOf(of)}
      close={close}
    >
      <p>A tag keeps a snapshot from expiry, under a name. A branch can also be written to.</p>
      <div className="row">
        <TextField name="Name" value={name} change={setName} at="name" isFirst isRequired />
        <ChoiceField name="Kind" value={type} options={KINDS} change={setType} />
      </div>
      {isTaken ? <p className="banner">There is a branch or tag of this name.</p> : null}
      <StateField name="Snapshot" metadata={table.metadata} value={id} choose={setId} isTimeOffered={false} />
      <ChangeList of={isReady ? [{ name: `${type} ${name}`, after: `snapshot ${id}` }] : []} />
    </ActDialog>
  );
}

export interface ReferenceActProps extends TableActProps {
  readonly name: string;
}

export function DropReference({ close, name, ...table }: ReferenceActProps) {
  const of = relationOf(table);
  const reference = table.metadata.refs?.[name] ?? null;
  const [typed, setTyped] = useState("");
  return (
    <ActDialog
      title={`Drop the ${reference?.type ?? "branch"} ${name}`}
      verb="Drop"
      isDangerous
      isReady={typed === name}
      request={commitOf(table, [assertAt(name, reference)], [{ action: "remove-snapshot-ref", "ref-name": name }])}
      command={commandOf(of, "refs drop", [name])}
      changed={historyOf(of)}
      close={close}
    >
      <p>Its snapshots stay until they expire; what was written to it alone is gone then.</p>
      <SureField word={name} value={typed} change={setTyped} />
    </ActDialog>
  );
}

/** Branches and tags that descend from a branch's snapshot, as far as the listed snapshots say. */
function listAhead({ refs = {}, snapshots = [] }: TableMetadata, branch: string): readonly string[] {
  const parents = new Map(snapshots.map((one) => [String(one["snapshot-id"]), one["parent-snapshot-id"]]));
  const from = String(refs[branch]?.["snapshot-id"] ?? "");
  return Object.entries(refs).flatMap(([name, reference]) => {
    let at = String(reference["snapshot-id"]);
    if (at === from) return [];
    while (at !== from) {
      const parent = parents.get(at);
      if (parent === undefined || parent === null) return [];
      at = String(parent);
    }
    return [name];
  });
}

export function FastForward({ close, name, ...table }: ReferenceActProps) {
  const of = relationOf(table);
  const { refs = {} } = table.metadata;
  const ahead = listAhead(table.metadata, name);
  const [chosen, setChosen] = useState(ahead[0] ?? "");
  const before = refs[name] ?? null;
  const after = refs[chosen];
  const update = {
    action: "set-snapshot-ref",
    "ref-name": name,
    type: "branch",
    "snapshot-id": after ? new LargeInteger(after["snapshot-id"]) : 0,
  };
  return (
    <ActDialog
      title={`Move ${name} forward`}
      verb="Move it"
      isReady={before !== null && after !== undefined}
      request={commitOf(table, [assertAt(name, before)], [update])}
      command={commandOf(of, "refs fast-forward", [name, chosen || "NAME"])}
      changed={historyOf(of)}
      close={close}
    >
      <p>The branch takes over all that was written to another one, which goes on from it. No row is written.</p>
      {ahead.length > 0 ? (
        <ChoiceField
          name="To"
          value={chosen}
          options={ahead.map((one) => [one, `${refs[one]?.type ?? ""} ${one}`] as const)}
          change={setChosen}
        />
      ) : (
        <p className="banner">No branch or tag goes on from {name}.</p>
      )}
      <ChangeList
        of={
          before && after
            ? [{ name, before: `snapshot ${before["snapshot-id"]}`, after: `snapshot ${after["snapshot-id"]}` }]
            : []
        }
      />
    </ActDialog>
  );
}

const DAY_MS = 86_400_000;

function daysOf(ms: number | undefined): string {
  return ms === undefined ? "" : String(ms / DAY_MS);
}

export function Retain({ close, name, ...table }: ReferenceActProps) {
  const of = relationOf(table);
  const reference = table.metadata.refs?.[name];
  const [age, setAge] = useState(daysOf(reference?.["max-ref-age-ms"]));
  const [snapshotAge, setSnapshotAge] = useState(daysOf(reference?.["max-snapshot-age-ms"]));
  const [least, setLeast] = useState(String(reference?.["min-snapshots-to-keep"] ?? ""));
  const isBranch = reference?.type === "branch";
  const isWhole = [age, snapshotAge, least].every((text) => /^(?:[1-9]\d{0,4})?$/.test(text));
  const kept = {
    ...(age ? { "max-ref-age-ms": Number(age) * DAY_MS } : {}),
    ...(snapshotAge ? { "max-snapshot-age-ms": Number(snapshotAge) * DAY_MS } : {}),
    ...(least ? { "min-snapshots-to-keep": Number(least) } : {}),
  };
  const update = {
    action: "set-snapshot-ref",
    "ref-name": name,
    type: reference?.type ?? "branch",
    "snapshot-id": reference ? new LargeInteger(reference["snapshot-id"]) : 0,
    ...kept,
  };
  const rule = (text: string, unit: string) => (text ? `${text} ${unit}` : "the table's rule");
  const changes = [
    { name: "kept for", before: rule(daysOf(reference?.["max-ref-age-ms"]), "days"), after: rule(age, "days") },
    {
      name: "its snapshots kept for",
      before: rule(daysOf(reference?.["max-snapshot-age-ms"]), "days"),
      after: rule(snapshotAge, "days"),
    },
    {
      name: "at least",
      before: rule(String(reference?.["min-snapshots-to-keep"] ?? ""), "snapshots"),
      after: rule(least, "snapshots"),
    },
  ].filter(({ before, after }) => before !== after);
  return (
    <ActDialog
      title={`How long ${name} is kept`}
      verb="Save"
      isReady={reference !== undefined && isWhole && changes.length > 0}
      request={commitOf(table, [assertAt(name, reference ?? null)], [update])}
      command={commandOf(of, "refs retain", [name], {
        "max-age": age ? `${age}d` : undefined,
        "max-snapshot-age": snapshotAge ? `${snapshotAge}d` : undefined,
        "min-snapshots": least,
      })}
      places={{ age: /age|retention|snapshots/i }}
      changed={historyOf(of)}
      close={close}
    >
      <p>Expiry drops it when it is older. An empty field leaves it to the table&rsquo;s properties.</p>
      <TextField name="Dropped after, in days" value={age} change={setAge} isFirst />
      {isBranch ? (
        <>
          <TextField name="Its snapshots kept for, in days" value={snapshotAge} change={setSnapshotAge} />
          <TextField name="Its newest snapshots kept, so many" value={least} change={setLeast} />
        </>
      ) : null}
      {isWhole ? null : <p className="field-trouble">Whole numbers from 1 on.</p>}
      <FieldTrouble at="age" />
      <ChangeList of={changes} />
    </ActDialog>
  );
}
