// The files that `duckicelake watch` has loaded into a table, or could not load, and where bad rows are.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { findQuery, type LoadedFile, loadedFilesQuery } from "../../api/queries.ts";
import { useAddressText } from "../../parts/addressText.ts";
import { Card } from "../../parts/Card.tsx";
import { commandName, writeCommand } from "../../parts/command.ts";
import { Code } from "../../parts/Copy.tsx";
import { Segments } from "../../parts/fields.tsx";
import { formatBytes } from "../../parts/format.ts";
import { TableLink } from "../../parts/links.tsx";
import { LongTable } from "../../parts/LongTable.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import type { TablePageProps } from "./Table.tsx";

const STATES = [
  ["", "All"],
  ["loaded", "Loaded"],
  ["loading", "Loading"],
  ["failed", "Failed"],
] as const;
type State = (typeof STATES)[number][0];
const COLOURS: Readonly<Record<string, string>> = { loaded: "good", loading: "accent", failed: "bad" };

export function LoadsPage({ warehouse, table }: TablePageProps) {
  const [text, setState] = useAddressText("state");
  const state: State = STATES.find(([one]) => one === text)?.[0] ?? "";
  const query = useInfiniteQuery(loadedFilesQuery(warehouse, table, state));
  const name = commandName([...table.namespace, table.name]);
  return (
    <>
      <Card title="Files" aside={<Segments name="State" value={state} options={STATES} choose={setState} />}>
        <Loaded query={query} lines={8}>
          {({ pages }) => {
            const files = pages.flatMap((page) => page.files);
            return files.length === 0 ? (
              <Empty title={state ? `None is ${state}` : "No file was loaded by watching a folder"}>
                What <code>duckicelake load</code> reads by hand is in the history, as appends.
              </Empty>
            ) : (
              <LongTable
                name="Loaded files"
                rows={files}
                keyOf={(file) => `${file.name} ${file.version} ${file.size}`}
                reachEnd={() => {
                  if (query.hasNextPage && !query.isFetchingNextPage) void query.fetchNextPage();
                }}
                columns={[
                  { name: "File", show: (file) => <code>{file.name}</code> },
                  { name: "State", show: (file) => <State file={file} /> },
                  { name: "Size", kind: "number", show: ({ size }) => formatBytes(Number(size)) },
                  { name: "When", show: ({ noted }) => <Time at={noted} /> },
                  { name: "Snapshot", kind: "number", show: (file) => String(file["snapshot-id"] ?? "") },
                  { name: "Run", show: (file) => <code>{file["run-id"]}</code> },
                ]}
              />
            );
          }}
        </Loaded>
      </Card>
      <BadRows warehouse={warehouse} table={table} />
      <Card title="Load more">
        <div className="inside stack tight">
          <Code text={writeCommand("load", warehouse, ["FILES"], { table: name })} what="load files once" />
          <Code text={writeCommand("watch", warehouse, ["FOLDER"], { table: name })} what="watch a folder" />
        </div>
      </Card>
    </>
  );
}

function State({ file }: { file: LoadedFile }) {
  return (
    <>
      <span className={`tag ${COLOURS[file.state] ?? ""}`}>{file.state}</span>
      {file.error ? <span className="minus"> {file.error}</span> : null}
    </>
  );
}

/** Rows that no load could read are in a table beside this one, unless a load names another place for them. */
function BadRows({ warehouse, table }: Pick<TablePageProps, "warehouse" | "table">) {
  const name = `${table.name}_quarantine`;
  const { data } = useQuery(findQuery(warehouse, name));
  const found = data?.some(
    (one) => one.kind === "table" && one.name === name && one.namespace.join(".") === table.namespace.join("."),
  );
  return (
    <Card title="Bad rows">
      {found ? (
        <p className="inside">
          <TableLink warehouse={warehouse} table={{ ...table, name }} /> has them, each with its file, its line, its
          text and what is wrong with it.
        </p>
      ) : (
        <p className="inside quiet">No load has kept any: there is no table {name}.</p>
      )}
    </Card>
  );
}
