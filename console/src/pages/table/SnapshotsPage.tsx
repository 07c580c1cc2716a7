// Snapshots, newest first, with branches and tags; and what changed between any two.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { GitBranch, Tag } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { joinIdentifier } from "../../api/address.ts";
import type { Answer } from "../../api/client.ts";
import type { Snapshot, TableMetadata } from "../../api/iceberg.ts";
import { comparisonQuery, snapshotsQuery } from "../../api/queries.ts";
import { Plot } from "../../charts/Plot.tsx";
import { useAddressText } from "../../parts/addressText.ts";
import { Card } from "../../parts/Card.tsx";
import { Copy } from "../../parts/Copy.tsx";
import { formatAbsolute, formatBytes, formatCount, formatKind, formatShort, plural } from "../../parts/format.ts";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import { DropReference, FastForward, Retain } from "./references.tsx";
import type { TablePageProps } from "./Table.tsx";

const ROW_PX = 64;
const LISTED = 500;

export function SnapshotsPage({ warehouse, table, metadata }: TablePageProps) {
  const { from, to } = useSearch({ from: "/w/$warehouse/tables/$table" });
  const navigate = useNavigate();
  const query = useInfiniteQuery(snapshotsQuery(warehouse, table));
  const newest = metadata.snapshots ?? [];
  const snapshots = useMemo(() => {
    const listed = query.data?.pages.flatMap((page) => page.snapshots as unknown as readonly Snapshot[]);
    return listed ?? [...newest].sort((a, b) => b["timestamp-ms"] - a["timestamp-ms"]);
  }, [query.data, newest]);
  const loadMore = () => {
    if (query.hasNextPage && !query.isFetchingNextPage) void query.fetchNextPage();
  };
  const current = String(metadata["current-snapshot-id"] ?? "");
  const newer = to ?? current;
  const parent = snapshots.find((one) => String(one["snapshot-id"]) === newer)?.["parent-snapshot-id"];
  const older = from ?? String(parent ?? "");
  if (snapshots.length === 0) {
    return (
      <Card title="Snapshots">
        <Empty title="No snapshots yet">Each change of the rows makes one.</Empty>
      </Card>
    );
  }
  const choose = (chosen: { from: string; to: string }) =>
    void navigate({
      to: "/w/$warehouse/tables/$table",
      params: { warehouse, table: joinIdentifier(table) },
      search: (before) => ({ ...before, page: "snapshots", ...chosen }),
      replace: true,
    });
  return (
    <>
      <References warehouse={warehouse} table={table} metadata={metadata} />
      <div className="columns wide-first">
        <Card title={plural(metadata.snapshotCount, "snapshot")}>
          <Timeline
            metadata={metadata}
            snapshots={snapshots}
            older={older}
            newer={newer}
            choose={(id) => choose({ from: "", to: id })}
            chooseOlder={(id) => choose({ from: id, to: newer })}
            reachEnd={loadMore}
          />
        </Card>
        <Card title="What changed">
          <div className="inside">
            <form className="row" aria-label="Compare">
              <Choice
                label="From"
                value={older}
                snapshots={snapshots}
                choose={(id) => choose({ from: id, to: newer })}
              />
              <Choice label="To" value={newer} snapshots={snapshots} choose={(id) => choose({ from: older, to: id })} />
            </form>
          </div>
          {older && newer ? (
            <Comparison warehouse={warehouse} table={table} from={older} to={newer} />
          ) : (
            <Empty title="The first snapshot">Nothing was there before it.</Empty>
          )}
        </Card>
      </div>
      <Growth snapshots={snapshots} />
    </>
  );
}

const SIDES = [
  { key: "total-records", name: "Rows" },
  { key: "total-files-size", name: "Bytes" },
  { key: "total-data-files", name: "Data files" },
] as const;
const DRAWN = 500;

/** What the table held after each snapshot, as their summaries say. */
function Growth({ snapshots }: { snapshots: readonly Snapshot[] }) {
  const [text, setKey] = useAddressText("grows", SIDES[0].key);
  const { key, name } = SIDES.find((one) => one.key === text) ?? SIDES[0];
  const points = snapshots.slice(0, DRAWN).flatMap((one) => {
    const value = Number(one.summary?.[key] ?? Number.NaN);
    const at = one["timestamp-ms"];
    return Number.isNaN(value) ? [] : [{ label: formatAbsolute(new Date(at)), at, value }];
  });
  if (points.length < 2) return null;
  return (
    <Card
      title="Growth"
      aside={
        <select aria-label="What grows" value={key} onChange={({ target }) => setKey(target.value)}>
          {SIDES.map((side) => (
            <option key={side.key} value={side.key}>
              {side.name}
            </option>
          ))}
        </select>
      }
    >
      <div className="inside">
        <Plot title={`${name} after each of the newest ${formatCount(points.length)} snapshots`} points={points} />
      </div>
    </Card>
  );
}

function References(of: TablePageProps) {
  const { metadata } = of;
  const all = Object.entries(metadata.refs ?? {});
  const times = new Map(metadata.snapshots?.map((one) => [String(one["snapshot-id"]), one["timestamp-ms"]]));
  if (all.length === 0) return null;
  return (
    <Card title="Branches and tags">
      <div className="scroll cards">
        <table>
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Kind</th>
              <th scope="col">Snapshot</th>
              <th scope="col">Of</th>
              <th scope="col">Kept</th>
              <th scope="col">
                <span className="hidden-text">Change</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {all.map(([name, reference]) => {
              const time = times.get(String(reference["snapshot-id"]));
              const age = reference["max-ref-age-ms"];
              return (
                <tr key={name}>
                  <td>
                    {reference.type === "branch" ? (
                      <GitBranch className="icon" aria-hidden />
                    ) : (
                      <Tag className="icon" aria-hidden />
                    )}{" "}
                    {name}
                  </td>
                  <td data-name="Kind">{reference.type}</td>
                  <td className="mono" data-name="Snapshot">
                    {reference["snapshot-id"]}
                  </td>
                  <td data-name="Of">{time === undefined ? "" : <Time at={time} />}</td>
                  <td className="quiet" data-name="Kept">
                    {age === undefined ? "for ever" : `${Math.round(age / 86_400_000)} days`}
                  </td>
                  <td className="number">
                    <ReferenceActs {...of} name={name} isBranch={reference.type === "branch"} />
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

const REFERENCE_ACTS = { "Move forward": FastForward, "How long it is kept": Retain, Drop: DropReference } as const;

function ReferenceActs({ isBranch, ...of }: TablePageProps & { name: string; isBranch: boolean }) {
  const [open, setOpen] = useState<keyof typeof REFERENCE_ACTS | null>(null);
  const names = Object.keys(REFERENCE_ACTS) as (keyof typeof REFERENCE_ACTS)[];
  const offered = names.filter((one) => (one !== "Move forward" || isBranch) && (one !== "Drop" || of.name !== "main"));
  const Act = open === null ? null : REFERENCE_ACTS[open];
  return (
    <>
      {offered.map((one) => (
        <button
          key={one}
          type="button"
          className="button plain small"
          aria-label={`${one}: ${of.name}`}
          onClick={() => setOpen(one)}
        >
          {one}
        </button>
      ))}
      {Act ? <Act {...of} close={() => setOpen(null)} /> : null}
    </>
  );
}

function Choice({
  label,
  value,
  snapshots,
  choose,
}: {
  label: string;
  value: string;
  snapshots: readonly Snapshot[];
  choose: (id: string) => void;
}) {
  const listed = snapshots.slice(0, LISTED);
  const ids = listed.map((one) => String(one["snapshot-id"]));
  const times = new Map(listed.map((one) => [String(one["snapshot-id"]), one["timestamp-ms"]]));
  return (
    <label className="field grow">
      <span>{label}</span>
      <select className="mono" value={value} onChange={({ target }) => choose(target.value)}>
        {value && ids.includes(value) ? null : <option value={value}>{value || "nothing"}</option>}
        {ids.map((id) => (
          <option key={id} value={id}>
            {id}, {formatAbsolute(new Date(times.get(id) ?? 0))}
          </option>
        ))}
      </select>
    </label>
  );
}

function Timeline({
  metadata,
  snapshots,
  older,
  newer,
  choose,
  chooseOlder,
  reachEnd,
}: {
  metadata: TableMetadata;
  snapshots: readonly Snapshot[];
  older: string;
  newer: string;
  choose: (id: string) => void;
  chooseOlder: (id: string) => void;
  reachEnd: () => void;
}) {
  const scroll = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: snapshots.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => ROW_PX,
    overscan: 10,
  });
  const references = useMemo(() => referencesOf(metadata), [metadata]);
  const items = rows.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (last >= snapshots.length - 50) reachEnd();
  }, [last, snapshots.length]);
  return (
    <div className="scroll tall" ref={scroll}>
      <ol className="timeline" style={{ height: rows.getTotalSize(), position: "relative" }}>
        {items.map(({ index, start }) => {
          const snapshot = snapshots[index];
          if (!snapshot) return null;
          const id = String(snapshot["snapshot-id"]);
          const isCurrent = id === String(metadata["current-snapshot-id"]);
          const classes = [isCurrent ? "current" : "", id === newer ? "chosen" : id === older ? "base" : ""];
          return (
            <li
              key={id}
              className={classes.join(" ")}
              style={{ position: "absolute", insetInline: 0, height: ROW_PX, transform: `translateY(${start}px)` }}
            >
              <span className="dot" aria-hidden />
              <div className="stack none">
                <div className="row tight">
                  <button type="button" className="choose" aria-pressed={id === newer} onClick={() => choose(id)}>
                    {formatKind(snapshot.summary?.["operation"] ?? "change")}
                  </button>
                  <Counts summary={snapshot.summary ?? {}} />
                  {(references.get(id) ?? []).map((name) => (
                    <span key={name} className="tag accent">
                      {name}
                    </span>
                  ))}
                </div>
                <div className="small quiet row tight">
                  <Time at={snapshot["timestamp-ms"]} />
                  <code>{id}</code>
                </div>
              </div>
              <div className="row tight">
                {id === newer || id === older ? null : (
                  <button type="button" className="button plain small" onClick={() => chooseOlder(id)}>
                    Compare
                  </button>
                )}
                <Copy text={id} what="the snapshot's id" />
              </div>
            </li>
          );
        })}
      </ol>
    </div>
  );
}

function referencesOf(metadata: TableMetadata): ReadonlyMap<string, readonly string[]> {
  const all = new Map<string, string[]>();
  for (const [name, reference] of Object.entries(metadata.refs ?? {})) {
    const id = String(reference["snapshot-id"]);
    all.set(id, [...(all.get(id) ?? []), name]);
  }
  return all;
}

function Counts({ summary }: { summary: Readonly<Record<string, string>> }) {
  const added = Number(summary["added-records"] ?? 0);
  const removed = Number(summary["deleted-records"] ?? 0);
  const deletes = Number(summary["added-position-deletes"] ?? 0) + Number(summary["added-equality-deletes"] ?? 0);
  return (
    <>
      {added > 0 ? <span className="tag good">+{formatShort(added)} rows</span> : null}
      {removed + deletes > 0 ? <span className="tag bad">−{formatShort(removed + deletes)} rows</span> : null}
    </>
  );
}

interface CompareProps {
  readonly warehouse: string;
  readonly table: TablePageProps["table"];
  readonly from: string;
  readonly to: string;
}

function Comparison({ warehouse, table, from, to }: CompareProps) {
  const query = useQuery(comparisonQuery(warehouse, table, from, to));
  return <Loaded query={query}>{(compared) => <Differences of={compared} />}</Loaded>;
}

function Change({ added, removed, format }: { added: number; removed: number; format: (count: number) => string }) {
  if (added === 0 && removed === 0) return <span className="quiet">none</span>;
  return (
    <>
      {added > 0 ? <span className="plus nowrap">+{format(added)}</span> : null}{" "}
      {removed > 0 ? <span className="minus nowrap">−{format(removed)}</span> : null}
    </>
  );
}

type Compared = Answer<"/v1/namespaces/{namespace}/tables/{table}/diff", "get">;

function Differences({ of }: { of: Compared }) {
  const isSame = of["files-added"] + of["files-removed"] + of.columns.length === 0 && of["rows-removed"] === 0;
  return (
    <div className="inside stack">
      <dl className="figures flat">
        <div>
          <dt>Rows</dt>
          <dd>
            <Change added={of["rows-added"]} removed={of["rows-removed"]} format={formatShort} />
          </dd>
        </div>
        <div>
          <dt>Files</dt>
          <dd>
            <Change added={of["files-added"]} removed={of["files-removed"]} format={formatCount} />
          </dd>
        </div>
        <div>
          <dt>Size</dt>
          <dd>
            <Change added={of["bytes-added"]} removed={of["bytes-removed"]} format={formatBytes} />
          </dd>
        </div>
      </dl>
      {isSame ? <p className="quiet">Rows, files and columns are the same.</p> : null}
      {of.columns.length > 0 ? (
        <>
          <h3>Columns</h3>
          <ul className="stack tight">
            {of.columns.map((column) => (
              <li key={column.name} className="mono">
                {column.name}{" "}
                {column.before === null || column.before === undefined ? (
                  <span className="tag good">new</span>
                ) : column.after === null || column.after === undefined ? (
                  <span className="tag bad">gone</span>
                ) : (
                  <span className="tag warn">changed</span>
                )}
              </li>
            ))}
          </ul>
        </>
      ) : null}
      {of.files.length > 0 ? (
        <>
          <h3>Files</h3>
          <ul className="stack tight small">
            {of.files.map((file) => (
              <li key={file.path} className="row tight" title={file.path}>
                <span className={file.change === "removed" ? "minus" : "plus"}>
                  {{ added: "+", removed: "−", "rows-changed": "±" }[file.change]}
                </span>
                <span className="mono cut">{file.path.split("/").at(-1)}</span>
                <span className="quiet nowrap">
                  {plural(file["rows-added"] + file["rows-removed"], "row")}, {formatBytes(file.bytes)}
                </span>
              </li>
            ))}
          </ul>
          {of["unlisted-files"] > 0 ? (
            <p className="quiet small">And {plural(of["unlisted-files"], "file")} more.</p>
          ) : null}
        </>
      ) : null}
    </div>
  );
}
