// Files and partitions: how large they are, and what a filter would read of them.
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { joinIdentifier } from "../../api/address.ts";
import type { Answer } from "../../api/client.ts";
import type { PlannedFile } from "../../api/iceberg.ts";
import { filesQuery, scanQuery, statisticsQuery } from "../../api/queries.ts";
import { type Bin, Histogram } from "../../charts/Histogram.tsx";
import { type Tile, Treemap } from "../../charts/Treemap.tsx";
import { Card } from "../../parts/Card.tsx";
import { Copy } from "../../parts/Copy.tsx";
import { formatBytes, formatCount, plural } from "../../parts/format.ts";
import { Empty, Loaded, Trouble } from "../../parts/Notice.tsx";
import type { TablePageProps } from "./Table.tsx";

type Scan = Answer<"/v1/namespaces/{namespace}/tables/{table}/explain", "post">;
const LISTED_FILES = 200;
const TILES = 400;

export function FilesPage({ warehouse, table }: TablePageProps) {
  const { where = "" } = useSearch({ from: "/w/$warehouse/tables/$table" });
  const navigate = useNavigate();
  const [typed, setTyped] = useState(where);
  const scan = useQuery(scanQuery(warehouse, table, where));
  const files = useQuery(filesQuery(warehouse, table));
  const { data: statistics } = useQuery(statisticsQuery(warehouse, table));
  const filter = (text: string) =>
    void navigate({
      to: "/w/$warehouse/tables/$table",
      params: { warehouse, table: joinIdentifier(table) },
      search: text.trim() ? { page: "files", where: text.trim() } : { page: "files" },
    });
  return (
    <>
      <Card title="What a filter reads">
        <div className="inside stack">
          <form
            className="row"
            onSubmit={(event) => {
              event.preventDefault();
              filter(typed);
            }}
          >
            <label className="row grow">
              <code>WHERE</code>
              <input
                className="mono grow"
                aria-label="Filter"
                placeholder="region = 'north' AND id > 1000"
                spellCheck={false}
                value={typed}
                onChange={({ target }) => setTyped(target.value)}
              />
            </label>
            <button className="button">Show what it reads</button>
          </form>
          {scan.error ? (
            <Trouble error={scan.error} />
          ) : (
            <Loaded query={scan} lines={11}>
              {(explained) => <Partitions scan={explained} isFiltered={where !== ""} />}
            </Loaded>
          )}
        </div>
      </Card>
      <div className="columns">
        <Card title="Sizes of data files">
          <Loaded query={files}>
            {({ files: all, isWhole }) =>
              all.length === 0 ? (
                <Empty title="No data files">
                  {statistics && statistics["inlined-rows"] > 0
                    ? `${plural(statistics["inlined-rows"], "row")} are still in Postgres.`
                    : "The table has no rows."}
                </Empty>
              ) : (
                <div className="inside stack">
                  <Histogram title="Data files by size" bins={binsOf(all)} />
                  {isWhole ? null : <p className="small quiet">Of the first {plural(all.length, "file")}.</p>}
                </div>
              )
            }
          </Loaded>
        </Card>
        <Card title="Upkeep">
          {statistics ? <Upkeep statistics={statistics} /> : <Empty title="No statistics of this table" />}
        </Card>
      </div>
      <Card title="Data files">
        <Loaded query={files}>{({ files: all }) => <FileTable files={all} />}</Loaded>
      </Card>
    </>
  );
}

function Partitions({ scan, isFiltered }: { scan: Scan; isFiltered: boolean }) {
  const tiles = useMemo(() => tilesOf(scan, isFiltered), [scan, isFiltered]);
  const total = { files: scan.total?.files ?? 0, bytes: scan.total?.bytes ?? 0, rows: scan.total?.rows ?? 0 };
  const read = { files: scan.read?.files ?? 0, bytes: scan.read?.bytes ?? 0 };
  if (total.files === 0) return <p className="quiet">There are no data files to read.</p>;
  const share = total.bytes > 0 ? Math.round((100 * read.bytes) / total.bytes) : 0;
  const pruned = scan.pruned;
  return (
    <>
      <p>
        {isFiltered ? (
          <>
            Reads <strong>{plural(read.files, "file")}</strong> of {formatCount(total.files)},{" "}
            <strong>{formatBytes(read.bytes)}</strong> of {formatBytes(total.bytes)} ({share} %).{" "}
            <span className="quiet">
              {plural(pruned?.["by-partition"] ?? 0, "file")} left out by partition,{" "}
              {formatCount(pruned?.["by-bounds"] ?? 0)} by bounds of columns.
            </span>
          </>
        ) : (
          <>
            {plural(total.files, "file")} with {formatBytes(total.bytes)} in{" "}
            {plural(scan["partitions-total"] ?? tiles.length, "partition")}.
          </>
        )}
      </p>
      <Treemap title="Partitions by size" tiles={tiles} />
    </>
  );
}

function tilesOf(scan: Scan, isFiltered: boolean): readonly Tile[] {
  const partitions = scan.partitions ?? [];
  const named = partitions.slice(0, TILES).map(({ partition, read, total }) => {
    const label =
      Object.entries(partition)
        .map(([name, value]) => `${name}=${String(value)}`)
        .join(", ") || "all";
    const bytes = total.bytes ?? 0;
    return {
      label,
      size: bytes,
      title: `${label}: ${plural(total.files ?? 0, "file")}, ${formatBytes(bytes)}`,
      strength: !isFiltered ? 0.75 : bytes > 0 ? (read.bytes ?? 0) / bytes : 0,
    };
  });
  const rest = (scan.total?.bytes ?? 0) - named.reduce((sum, tile) => sum + tile.size, 0);
  if (rest <= 0) return named;
  const title = `${isFiltered ? "partitions that aren't read" : "others"}: ${formatBytes(rest)}`;
  return [...named, { label: isFiltered ? "not read" : "others", size: rest, title, strength: 0 }];
}

const BIN_EDGES = [16e3, 256e3, 1e6, 16e6, 64e6, 256e6, 512e6];

function binsOf(files: readonly PlannedFile[]): readonly Bin[] {
  const counts = new Array<number>(BIN_EDGES.length + 1).fill(0);
  for (const file of files) {
    const place = BIN_EDGES.findIndex((edge) => file["file-size-in-bytes"] < edge);
    const bin = place < 0 ? BIN_EDGES.length : place;
    counts[bin] = (counts[bin] ?? 0) + 1;
  }
  const last = formatBytes(BIN_EDGES.at(-1) ?? 0).replace(".0", "");
  return counts.map((count, place) => {
    const edge = BIN_EDGES[place];
    return { label: edge === undefined ? `≥ ${last}` : `< ${formatBytes(edge).replace(".0", "")}`, count };
  });
}

type Statistics = Answer<"/pipeline/v1/tables", "get">["tables"][number];

function Upkeep({ statistics }: { statistics: Statistics }) {
  const facts = [
    ["Small files", `${formatCount(statistics["small-files"])}, ${formatBytes(statistics["small-bytes"])}`],
    ["Files with deletes", formatCount(statistics["files-with-deletes"])],
    ["Deleted rows", formatCount(statistics.deleted)],
    ["Delete files", formatCount(statistics["delete-files"])],
    ["Rows in Postgres", formatCount(statistics["inlined-rows"])],
    ["Unsorted", formatBytes(statistics["unsorted-bytes"])],
    ["Manifests", `${formatCount(statistics.manifests)}, ${formatCount(statistics["small-manifests"])} of them small`],
    ["Target size of a file", formatBytes(statistics["target-size"])],
  ] as const;
  return (
    <dl className="inside facts">
      {facts.map(([name, value]) => (
        <div key={name} className="fact">
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function FileTable({ files }: { files: readonly PlannedFile[] }) {
  const largest = [...files].sort((a, b) => b["file-size-in-bytes"] - a["file-size-in-bytes"]).slice(0, LISTED_FILES);
  if (largest.length === 0) return <Empty title="No data files" />;
  return (
    <>
      <div className="scroll tall cards" tabIndex={0} role="group" aria-label="Data files">
        <table>
          <thead>
            <tr>
              <th scope="col">File</th>
              <th scope="col">Partition</th>
              <th scope="col" className="number">
                Rows
              </th>
              <th scope="col" className="number">
                Size
              </th>
            </tr>
          </thead>
          <tbody>
            {largest.map((file) => (
              <tr key={file["file-path"]}>
                <td className="mono" title={file["file-path"]}>
                  <span className="row tight">
                    {file["file-path"].split("/").at(-1)}
                    <Copy text={file["file-path"]} what="the path" />
                  </span>
                </td>
                <td data-name="Partition">
                  {file.partition.map((value) => (value === null ? "NULL" : String(value))).join(", ")}
                </td>
                <td className="number" data-name="Rows">
                  {formatCount(file["record-count"])}
                </td>
                <td className="number" data-name="Size">
                  {formatBytes(file["file-size-in-bytes"])}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {files.length > LISTED_FILES ? (
        <p className="inside small quiet">
          The {formatCount(LISTED_FILES)} largest of {formatCount(files.length)}.
        </p>
      ) : null}
    </>
  );
}
