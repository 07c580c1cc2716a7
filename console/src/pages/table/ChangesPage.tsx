// What happened to a table's rows between two snapshots, update by update, and what happens now.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { Download, Radio } from "lucide-react";
import { useEffect, useId, useRef, useState } from "react";
import { apiNamespace, joinIdentifier } from "../../api/address.ts";
import { currentSchema } from "../../api/iceberg.ts";
import { snapshotsQuery } from "../../api/queries.ts";
import { type ChangesPage as Found, readChanges, type Row, type RowChange, writeLines } from "../../api/rowChanges.ts";
import { useAddressText } from "../../parts/addressText.ts";
import { Card } from "../../parts/Card.tsx";
import { commandName, writeCommand, writeCurl } from "../../parts/command.ts";
import { Code } from "../../parts/Copy.tsx";
import { formatAbsolute, plural } from "../../parts/format.ts";
import { LongTable } from "../../parts/LongTable.tsx";
import { Empty, Loaded, Trouble } from "../../parts/Notice.tsx";
import type { TablePageProps } from "./Table.tsx";

const ROWS_EACH = 1000;
const MOST_CHANGES = 20_000;
const PAUSE_MS = 3000;
const BEGINNING = "beginning";
/** Whose changes are shown at first: an upsert makes two. */
const FIRST_SNAPSHOTS = 10;

export function ChangesPage({ warehouse, table, metadata }: TablePageProps) {
  const search = useSearch({ from: "/w/$warehouse/tables/$table" });
  const navigate = useNavigate();
  const listed = useInfiniteQuery(snapshotsQuery(warehouse, table));
  const snapshots = listed.data?.pages[0]?.snapshots ?? [];
  // It stays where it was when new snapshots come.
  const first = useRef<string | null>(null);
  if (!listed.isPending) {
    first.current ??= String(snapshots.slice(0, FIRST_SNAPSHOTS).at(-1)?.["parent-snapshot-id"] ?? BEGINNING);
  }
  const from = search.from ?? first.current ?? BEGINNING;
  const choose = (chosen: { from?: string; to?: string | undefined }) => {
    const { from: after, to } = { from, to: search.to, ...chosen };
    void navigate({
      to: "/w/$warehouse/tables/$table",
      params: { warehouse, table: joinIdentifier(table) },
      search: ({ key }) => ({ page: "changes", from: after, ...(to ? { to } : {}), ...(key ? { key } : {}) }),
    });
  };
  const asked: Asked = { from: from === BEGINNING ? undefined : from, to: search.to, key: search.key };
  const named = snapshots.map((one) => ({
    id: String(one["snapshot-id"]),
    text: `${formatAbsolute(new Date(one["timestamp-ms"]))} · ${one.summary?.["operation"] ?? "snapshot"}`,
  }));
  const changes = useQuery({
    queryKey: [warehouse, "row changes", table, asked],
    queryFn: ({ signal }) => readChanges(warehouse, table, { ...asked, limit: ROWS_EACH }, signal),
    enabled: search.from !== undefined || !listed.isPending,
    retry: false,
    staleTime: 0,
  });
  return (
    <>
      <Card title="Which changes">
        <div className="inside row top">
          <SnapshotField
            name="After"
            value={from}
            known={named}
            other={[BEGINNING, "the table’s beginning"]}
            choose={(value) => choose({ from: value })}
          />
          <SnapshotField
            name="Up to"
            value={search.to ?? ""}
            known={named}
            other={["", "the newest snapshot"]}
            choose={(value) => choose({ to: value || undefined })}
          />
          <KeyField metadata={metadata} />
        </div>
      </Card>
      <Loaded query={changes} lines={10}>
        {(page) => (
          <Changes
            key={page.position + from}
            warehouse={warehouse}
            table={table}
            first={page}
            to={search.to}
            rowKey={search.key}
          />
        )}
      </Loaded>
      <Programs warehouse={warehouse} levels={[...table.namespace, table.name]} asked={asked} table={table} />
    </>
  );
}

function SnapshotField({
  name,
  value,
  known,
  other,
  choose,
}: {
  name: string;
  value: string;
  known: readonly { readonly id: string; readonly text: string }[];
  other: readonly [value: string, name: string];
  choose: (value: string) => void;
}) {
  const isKnown = value === other[0] || known.some(({ id }) => id === value);
  return (
    <label className="field grow">
      <span>{name}</span>
      <select value={value} onChange={({ target }) => choose(target.value)}>
        <option value={other[0]}>{other[1]}</option>
        {isKnown ? null : <option value={value}>{value}</option>}
        {known.map(({ id, text }) => (
          <option key={id} value={id}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

interface Asked {
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  readonly key?: string | undefined;
}

/** By which columns rows are the same. So a client's delete and insert of one transaction are an update. */
function KeyField({ metadata }: Pick<TablePageProps, "metadata">) {
  const [key, setKey] = useAddressText("key");
  const [typed, setTyped] = useState(key);
  useEffect(() => setTyped(key), [key]);
  const names = currentSchema(metadata).fields.map(({ name }) => name);
  const id = useId();
  return (
    <label className="field grow">
      <span>A row is the same by</span>
      <input
        className="mono"
        list={id}
        placeholder="as the table has it"
        value={typed}
        spellCheck={false}
        onChange={({ target }) => setTyped(target.value)}
        onKeyDown={({ key: pressed }) => {
          if (pressed === "Enter") setKey(typed.trim());
        }}
        onBlur={() => setKey(typed.trim())}
      />
      <datalist id={id}>
        {names.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </label>
  );
}

interface ChangesProps extends Pick<TablePageProps, "warehouse" | "table"> {
  readonly first: Found;
  /** The last snapshot; undefined: the newest, so that others may follow. */
  readonly to: string | undefined;
  readonly rowKey: string | undefined;
}

/** Pages of changes, one behind the other. */
function useChanges({ warehouse, table, first, to, rowKey }: ChangesProps) {
  const [found, setFound] = useState(first);
  const [error, setError] = useState<unknown>(null);
  const [isFollowing, setFollowing] = useState(false);
  const [isAsking, setAsking] = useState(false);
  const shown = useRef(first);
  const go = async (signal?: AbortSignal) => {
    setAsking(true);
    try {
      const next = await readChanges(
        warehouse,
        table,
        { from: shown.current.position, to, key: rowKey, limit: ROWS_EACH },
        signal,
      );
      const known = shown.current;
      shown.current = {
        ...next,
        columns: next.columns.length > 0 ? next.columns : known.columns,
        changes: [...known.changes, ...next.changes].slice(-MOST_CHANGES),
      };
      setFound(shown.current);
      setError(null);
    } catch (failed) {
      if (!signal?.aborted) setError(failed);
    } finally {
      setAsking(false);
    }
  };
  useEffect(() => {
    if (!isFollowing) return undefined;
    const stop = new AbortController();
    const follow = async () => {
      while (!stop.signal.aborted) {
        if (!document.hidden) await go(stop.signal);
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
    };
    void follow();
    return () => stop.abort();
  }, [isFollowing]);
  return { found, error, isFollowing, setFollowing, isAsking, go };
}

function Changes(props: ChangesProps) {
  const { found, error, isFollowing, setFollowing, isAsking, go } = useChanges(props);
  const isOpen = !props.to;
  const numbered = found.changes.map((change, place) => ({ ...change, place }));
  return (
    <Card
      title="Rows that changed"
      aside={
        <>
          <span className="quiet small" role="status">
            {plural(found.changes.length, "change")}
            {found.isComplete ? "" : ", and more"}
          </span>
          {isOpen ? (
            <button
              type="button"
              className="button small"
              aria-pressed={isFollowing}
              onClick={() => setFollowing(!isFollowing)}
            >
              <Radio className="icon" aria-hidden /> {isFollowing ? "Following" : "Follow"}
            </button>
          ) : null}
          {found.changes.length > 0 ? (
            <button type="button" className="button small" onClick={() => download(found.changes)}>
              <Download className="icon" aria-hidden /> JSON lines
            </button>
          ) : null}
        </>
      }
    >
      {error === null ? null : <Trouble error={error} />}
      {numbered.length === 0 ? (
        <Empty title="No row changed">Compaction, flushes and rewrites change none.</Empty>
      ) : (
        <LongTable
          name="Rows that changed"
          isGrid
          rows={numbered}
          keyOf={({ place }) => String(place)}
          columns={[
            { name: "Change", show: ({ kind }) => <span className={`tag ${COLOURS[kind]}`}>{kind}</span> },
            { name: "Snapshot of the lake", kind: "number", show: ({ snapshot }) => snapshot },
            { name: "Row", kind: "number", show: ({ rowId }) => rowId ?? "" },
            ...found.columns.map((column) => ({
              name: column,
              show: (change: RowChange) => <Cell change={change} column={column} />,
            })),
          ]}
        />
      )}
      {found.isComplete || isFollowing ? null : (
        <button type="button" className="button" disabled={isAsking} onClick={() => void go()}>
          More
        </button>
      )}
    </Card>
  );
}

const COLOURS = { insert: "good", update: "accent", delete: "bad" } as const;

/** A value; of an update that changed it, the one before, too. */
function Cell({ change: { before, after }, column }: { change: RowChange; column: string }) {
  const [was, is] = [before, after].map((row) => (row === null ? null : writeValue(row, column)));
  if (was == null || is == null || was === is) return <Value text={is ?? was ?? ""} />;
  return (
    <>
      <del className="minus">
        <Value text={was} />
      </del>{" "}
      <ins className="plus">
        <Value text={is} />
      </ins>
    </>
  );
}

/** One line of it; all of it where one points at it. */
function Value({ text }: { text: string }) {
  return (
    <span className="value" title={text}>
      {text}
    </span>
  );
}

function writeValue(row: Row, column: string): string {
  const value = row[column];
  if (value == null) return "NULL";
  return typeof value === "object" ? JSON.stringify(value) : String(value as string | number | boolean);
}

function download(changes: readonly RowChange[]): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([writeLines(changes)], { type: "application/x-ndjson" }));
  link.download = "changes.jsonl";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** The same for a program, and where it may hand the rows on to. */
function Programs({
  warehouse,
  levels,
  asked,
  table,
}: {
  warehouse: string;
  levels: readonly string[];
  asked: Asked;
  table: TablePageProps["table"];
}) {
  const curl = writeCurl({
    method: "GET",
    path: "/v1/namespaces/{namespace}/tables/{table}/changes",
    warehouse,
    values: { namespace: apiNamespace(table.namespace), table: table.name },
    query: { ...asked },
  });
  const follow = { follow: true, state: "changes.json" };
  const write = (options: Parameters<typeof writeCommand>[3]) =>
    writeCommand("changes", warehouse, [commandName(levels)], options);
  return (
    <Card title="For programs">
      <div className="inside stack tight">
        <p className="quiet small">
          The server keeps no list of who follows: a reader keeps its own place, in a file or in Kafka, and gets each
          change once.
        </p>
        <Code text={write({ ...asked })} what="the command" />
        <Code text={curl} what="the request" />
        <Code text={write({ ...follow, key: asked.key, sink: "https://hooks.example.com/rows" })} what="to a webhook" />
        <Code text={write({ follow: true, key: asked.key, sink: "kafka://broker:9092/rows" })} what="to Kafka" />
      </div>
    </Card>
  );
}
