// What can be done to a table. Each act says first what it will do.
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { apiNamespace, joinIdentifier, splitName } from "../../api/address.ts";
import { LargeInteger } from "../../api/client.ts";
import type { Snapshot } from "../../api/iceberg.ts";
import { ActDialog, DryRun, ofTable, type Request } from "../../parts/Act.tsx";
import { commandName, writeCommand } from "../../parts/command.ts";
import { formatAbsolute, formatCount, plural } from "../../parts/format.ts";
import { Menu } from "../../parts/Menu.tsx";
import type { TablePageProps } from "./Table.tsx";

interface ActProps extends TablePageProps {
  readonly close: () => void;
}

const ACTS = {
  "Edit the comment": Comment,
  "Write rows to files": Flush,
  "Make a branch or tag": MakeReference,
  "Restore a snapshot": Restore,
  "Expire snapshots": Expire,
  Rename,
  Drop,
} as const;

export function TableActs(table: TablePageProps) {
  const [open, setOpen] = useState<keyof typeof ACTS | null>(null);
  const Act = open === null ? null : ACTS[open];
  return (
    <>
      <Menu
        name="Change"
        items={(Object.keys(ACTS) as (keyof typeof ACTS)[]).map((name) => ({
          name,
          isDangerous: name === "Drop",
          choose: () => setOpen(name),
        }))}
      />
      {Act ? <Act {...table} close={() => setOpen(null)} /> : null}
    </>
  );
}

function requestOf({ warehouse, table }: TablePageProps, act: "" | "/restore" | "/expire" | "/rows/flush"): Request {
  return {
    method: "POST",
    path: `/v1/namespaces/{namespace}/tables/{table}${act}`,
    warehouse,
    values: { namespace: apiNamespace(table.namespace), table: table.name },
  };
}

/** The command of a verb on the table. */
function commandOf({ warehouse, table }: TablePageProps, verb: string, given: readonly string[] = [], options = {}) {
  return writeCommand(verb, warehouse, [commandName([...table.namespace, table.name]), ...given], options);
}

function Comment({ close, ...of }: ActProps) {
  const [text, setText] = useState(of.metadata.properties?.["comment"] ?? "");
  const update = text
    ? { action: "set-properties", updates: { comment: text } }
    : { action: "remove-properties", removals: ["comment"] };
  return (
    <ActDialog
      title="Edit the comment"
      verb="Save"
      request={{ ...requestOf(of, ""), body: { requirements: [], updates: [update] } }}
      command={commandOf(of, "comment", [text])}
      changed={ofTable(of.table)}
      close={close}
    >
      <label className="field">
        <span>Comment</span>
        <textarea rows={3} value={text} onChange={({ target }) => setText(target.value)} autoFocus />
        <span className="hint">All engines show it. An empty one removes it.</span>
      </label>
    </ActDialog>
  );
}

function Flush({ close, ...of }: ActProps) {
  return (
    <ActDialog
      title="Write rows to files"
      verb="Write"
      request={requestOf(of, "/rows/flush")}
      command={commandOf(of, "flush")}
      changed={ofTable(of.table)}
      close={close}
    >
      <p>
        Rows and deletes that are still in Postgres go to Parquet files. Readers see the same rows before and after. If
        none are there, nothing is written.
      </p>
    </ActDialog>
  );
}

function SnapshotField({
  snapshots,
  value,
  choose,
}: {
  snapshots: readonly Snapshot[];
  value: string;
  choose: (id: string) => void;
}) {
  return (
    <label className="field">
      <span>Snapshot</span>
      <select className="mono" value={value} onChange={({ target }) => choose(target.value)}>
        {snapshots.slice(0, 500).map((one) => (
          <option key={one["snapshot-id"]} value={String(one["snapshot-id"])}>
            {one["snapshot-id"]}, {formatAbsolute(new Date(one["timestamp-ms"]))}
          </option>
        ))}
      </select>
    </label>
  );
}

function newestFirst({ metadata }: TablePageProps): readonly Snapshot[] {
  return [...(metadata.snapshots ?? [])].sort((a, b) => b["timestamp-ms"] - a["timestamp-ms"]);
}

function MakeReference({ close, ...of }: ActProps) {
  const snapshots = newestFirst(of);
  const [name, setName] = useState("");
  const [type, setType] = useState<"branch" | "tag">("tag");
  const [id, setId] = useState(String(of.metadata["current-snapshot-id"] ?? ""));
  const isTaken = name in (of.metadata.refs ?? {});
  const isReady = name.trim() !== "" && /^-?\d+$/.test(id) && !isTaken;
  const update = {
    action: "set-snapshot-ref",
    "ref-name": name,
    type,
    "snapshot-id": isReady ? new LargeInteger(id) : 0,
  };
  const requirement = { type: "assert-ref-snapshot-id", ref: name, "snapshot-id": null };
  return (
    <ActDialog
      title="Make a branch or tag"
      verb="Make it"
      isReady={isReady}
      request={{ ...requestOf(of, ""), body: { requirements: [requirement], updates: [update] } }}
      command={commandOf(of, "refs create", [name || "NAME"], { at: id, tag: type === "tag" })}
      changed={ofTable(of.table)}
      close={close}
    >
      <p>A tag keeps a snapshot from expiry, under a name. A branch can also be written to.</p>
      <div className="row">
        <label className="field grow">
          <span>Name</span>
          <input value={name} onChange={({ target }) => setName(target.value)} autoFocus />
        </label>
        <label className="field">
          <span>Kind</span>
          <select value={type} onChange={({ target }) => setType(target.value === "tag" ? "tag" : "branch")}>
            <option>tag</option>
            <option>branch</option>
          </select>
        </label>
      </div>
      {isTaken ? <p className="banner">There is a branch or tag of this name.</p> : null}
      <SnapshotField snapshots={snapshots} value={id} choose={setId} />
    </ActDialog>
  );
}

interface Restored {
  readonly "files-added": number;
  readonly "files-removed": number;
  readonly "rows-added": number;
  readonly "rows-removed": number;
  readonly "changes-definition": boolean;
}

function Restore({ close, ...of }: ActProps) {
  const snapshots = newestFirst(of).filter(
    (one) => String(one["snapshot-id"]) !== String(of.metadata["current-snapshot-id"]),
  );
  const [id, setId] = useState(String(snapshots[0]?.["snapshot-id"] ?? ""));
  const request = requestOf(of, "/restore");
  return (
    <ActDialog
      title="Restore a snapshot"
      verb="Restore"
      isReady={id !== ""}
      request={{ ...request, body: { to: id } }}
      command={commandOf(of, "restore", [], { to: id })}
      changed={ofTable(of.table)}
      close={close}
    >
      <p>
        The earlier state becomes the newest one, by a new snapshot. What was written since stays listed, and another
        restore brings it back.
      </p>
      <SnapshotField snapshots={snapshots} value={id} choose={setId} />
      {id ? (
        <DryRun<Restored> request={{ ...request, body: { to: id, "dry-run": true } }}>
          {(would) => (
            <p className="banner good">
              {plural(would["rows-added"], "row")} would come back, {formatCount(would["rows-removed"])} would go;{" "}
              {plural(would["files-added"], "file")} would come, {formatCount(would["files-removed"])} go.
              {would["changes-definition"] ? " Columns or partitions change, too." : ""}
            </p>
          )}
        </DryRun>
      ) : (
        <p className="banner">There is no earlier snapshot.</p>
      )}
    </ActDialog>
  );
}

const DAY_MS = 86_400_000;

function Expire({ close, ...of }: ActProps) {
  const [days, setDays] = useState(30);
  const [now] = useState(Date.now());
  const request = requestOf(of, "/expire");
  const body = { "older-than-ms": now - days * DAY_MS, "retain-last": 1 };
  return (
    <ActDialog
      title="Expire snapshots"
      verb="Expire"
      isDangerous
      request={{ ...request, body }}
      command={commandOf(of, "expire", [], { "older-than": `${days}d` })}
      changed={ofTable(of.table)}
      close={close}
    >
      <p>
        Snapshots that are older leave the list for good, but for those of branches and tags. Files that nothing needs
        any more go with the next cleanup. The rows of today stay.
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
      <DryRun<{ snapshots: number; left: number }> request={{ ...request, body: { ...body, "dry-run": true } }}>
        {({ snapshots, left }) => (
          <p className="banner good">
            {plural(snapshots, "snapshot")} would go, {formatCount(left)} stay.
          </p>
        )}
      </DryRun>
    </ActDialog>
  );
}

function Rename({ close, ...of }: ActProps) {
  const navigate = useNavigate();
  const [text, setText] = useState(joinIdentifier(of.table));
  const levels = splitName(text);
  const destination = { namespace: levels.slice(0, -1), name: levels.at(-1) ?? "" };
  const isReady = levels.length > 1 && levels.every((level) => level !== "") && text !== joinIdentifier(of.table);
  return (
    <ActDialog
      title="Rename the table"
      verb="Rename"
      isReady={isReady}
      request={{
        method: "POST",
        path: "/v1/tables/rename",
        warehouse: of.warehouse,
        body: { source: of.table, destination },
      }}
      command={commandOf(of, "rename table", [commandName(levels)])}
      changed={ofTable(of.table)}
      close={close}
      done={() =>
        void navigate({
          to: "/w/$warehouse/tables/$table",
          params: { warehouse: of.warehouse, table: joinIdentifier(destination) },
        })
      }
    >
      <p>
        No file moves. The table keeps its id, history, branches and grants. Who reads it by its old name finds nothing.
      </p>
      <label className="field">
        <span>New name, with its namespace</span>
        <input className="mono" value={text} onChange={({ target }) => setText(target.value)} autoFocus />
        <span className="hint">A dot inside of a name has a tilde before it.</span>
      </label>
    </ActDialog>
  );
}

function Drop({ close, ...of }: ActProps) {
  const navigate = useNavigate();
  const [typed, setTyped] = useState("");
  return (
    <ActDialog
      title={`Drop ${of.table.name}`}
      verb="Drop"
      isDangerous
      isReady={typed === of.table.name}
      request={{ ...requestOf(of, ""), method: "DELETE" }}
      command={commandOf(of, "drop table")}
      changed={ofTable(of.table)}
      close={close}
      done={() => void navigate({ to: "/w/$warehouse/dropped", params: { warehouse: of.warehouse } })}
    >
      <p>
        Clients find the table no longer. Its files stay, and it can be brought back as long as the lake keeps what was
        dropped: 7 days, if nothing else is set.
      </p>
      <label className="field">
        <span>
          Type <code>{of.table.name}</code> to drop it
        </span>
        <input value={typed} onChange={({ target }) => setTyped(target.value)} autoFocus spellCheck={false} />
      </label>
    </ActDialog>
  );
}
