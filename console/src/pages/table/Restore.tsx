// An earlier state of a table made the newest one, with a picture of the rows that stay, come back and go.
import { useState } from "react";
import type { Snapshot } from "../../api/iceberg.ts";
import { ActDialog, DryRun } from "../../parts/Act.tsx";
import { formatCount, plural } from "../../parts/format.ts";
import { commandOf, historyOf } from "../acts/relation.ts";
import { relationOf, requestBelow, type TableActProps } from "./relation.ts";
import { newestFirst, StateField } from "./StateField.tsx";
import { FieldTrouble } from "../../parts/refusal.tsx";

interface Restored {
  readonly "files-added": number;
  readonly "files-removed": number;
  readonly "rows-added": number;
  readonly "rows-removed": number;
  readonly "changes-definition": boolean;
}

export function Restore({ close, ...table }: TableActProps) {
  const of = relationOf(table);
  const current = String(table.metadata["current-snapshot-id"] ?? "");
  const earlier = newestFirst(table.metadata).find((one) => String(one["snapshot-id"]) !== current);
  const [to, setTo] = useState(earlier ? String(earlier["snapshot-id"]) : "");
  const now = table.metadata.snapshots?.find((one) => String(one["snapshot-id"]) === current);
  return (
    <ActDialog
      title="Restore an earlier state"
      verb="Restore"
      isReady={to !== ""}
      request={requestBelow(table, "/restore", { to })}
      command={commandOf(of, "restore", [], { to })}
      places={{ to: /snapshot|time|state|version|ref/i }}
      changed={historyOf(of)}
      close={close}
    >
      <p>
        The earlier state becomes the newest one, by a new snapshot. What was written since stays listed, and another
        restore brings it back.
      </p>
      <StateField name="State" metadata={table.metadata} value={to} choose={setTo} />
      <FieldTrouble at="to" />
      {to ? (
        <DryRun<Restored> request={requestBelow(table, "/restore", { to, "dry-run": true })}>
          {(would) => <Would would={would} now={now} />}
        </DryRun>
      ) : (
        <p className="banner">{earlier ? "Choose a state." : "There is no earlier snapshot."}</p>
      )}
    </ActDialog>
  );
}

function Would({ would, now }: { would: Restored; now: Snapshot | undefined }) {
  const [come, go] = [would["rows-added"], would["rows-removed"]];
  const stay = Math.max(0, Number(now?.summary?.["total-records"] ?? 0) - go);
  return (
    <div className="stack tight">
      <Balance stay={stay} come={come} go={go} />
      <p className="banner good">
        {plural(come, "row")} would come back, {formatCount(go)} would go; {plural(would["files-added"], "file")} would
        come, {formatCount(would["files-removed"])} go.
        {would["changes-definition"] ? " Columns, partitions or the order change, too." : ""}
      </p>
    </div>
  );
}

/** Two bars as wide as their rows: the table now, and as it would be. */
function Balance({ stay, come, go }: { stay: number; come: number; go: number }) {
  const most = Math.max(stay + come, stay + go, 1);
  const bar = (parts: readonly (readonly [count: number, kind: string])[]) => (
    <span className="balance-bar">
      {parts.map(([count, kind]) => (
        <span key={kind} className={kind} style={{ width: `${(100 * count) / most}%` }} />
      ))}
    </span>
  );
  return (
    <figure className="balance" role="img" aria-label={`Rows now ${stay + go}, then ${stay + come}`}>
      <span className="small quiet">now</span>
      {bar([
        [stay, "stay"],
        [go, "go"],
      ])}
      <span className="small number">{formatCount(stay + go)} rows</span>
      <span className="small quiet">then</span>
      {bar([
        [stay, "stay"],
        [come, "come"],
      ])}
      <span className="small number">{formatCount(stay + come)} rows</span>
    </figure>
  );
}
