// Chooses a state of a table: a branch or tag, a snapshot, a time.
import { useState } from "react";
import type { Snapshot, TableMetadata } from "../../api/iceberg.ts";
import { formatAbsolute } from "../../parts/format.ts";

const LISTED = 500;
const TIME = "\u0000time";

export function newestFirst(metadata: TableMetadata): readonly Snapshot[] {
  return [...(metadata.snapshots ?? [])].sort((a, b) => b["timestamp-ms"] - a["timestamp-ms"]);
}

function isId(value: string): boolean {
  return /^-?\d+$/.test(value);
}

/** value: as the API takes it; empty is now, where that may be chosen. */
export function StateField({
  name,
  metadata,
  value,
  choose,
  isNowOffered = false,
  isTimeOffered = true,
}: {
  name: string;
  metadata: TableMetadata;
  value: string;
  choose: (value: string) => void;
  isNowOffered?: boolean;
  isTimeOffered?: boolean;
}) {
  const [isTime, setTime] = useState(false);
  const snapshots = newestFirst(metadata);
  const references = Object.entries(metadata.refs ?? {}).filter(([reference]) => reference !== "main");
  return (
    <div className="row">
      <label className="field grow">
        <span>{name}</span>
        <select
          className="mono"
          value={isTime ? TIME : value}
          onChange={({ target }) => {
            setTime(target.value === TIME);
            choose(target.value === TIME ? "" : target.value);
          }}
        >
          {isNowOffered ? <option value="">as it is now</option> : null}
          {isTimeOffered ? <option value={TIME}>at a time…</option> : null}
          {isTimeOffered && references.length > 0 ? (
            <optgroup label="Branches and tags">
              {references.map(([reference, { type }]) => (
                <option key={reference} value={reference} disabled={isId(reference)}>
                  {type} {reference}
                </option>
              ))}
            </optgroup>
          ) : null}
          <optgroup label="Snapshots">
            {snapshots.slice(0, LISTED).map((one) => (
              <option key={one["snapshot-id"]} value={String(one["snapshot-id"])}>
                {one["snapshot-id"]}, {formatAbsolute(new Date(one["timestamp-ms"]))}
              </option>
            ))}
          </optgroup>
        </select>
      </label>
      {isTime ? (
        <label className="field">
          <span>Time, in this browser&rsquo;s zone</span>
          <input
            type="datetime-local"
            step={1}
            onChange={({ target }) => {
              const time = new Date(target.value);
              choose(Number.isNaN(time.getTime()) ? "" : time.toISOString());
            }}
          />
        </label>
      ) : null}
    </div>
  );
}
