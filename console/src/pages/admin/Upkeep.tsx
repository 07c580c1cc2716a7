// Upkeep of a warehouse: jobs that ran, and by what the next ones are decided.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { allStatisticsQuery, type Job, jobsQuery, type Statistics } from "../../api/operation.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { Code } from "../../parts/Copy.tsx";
import { writeCommand } from "../../parts/command.ts";
import { Dialog } from "../../parts/Dialog.tsx";
import { Facts } from "../../parts/Facts.tsx";
import { Segments } from "../../parts/fields.tsx";
import { formatBytes, formatCount, formatDuration, formatKind } from "../../parts/format.ts";
import { TableLink } from "../../parts/links.tsx";
import { type Column, LongTable } from "../../parts/LongTable.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";

const RESULTS = [
  ["", "All"],
  ["running", "Running"],
  ["done", "Done"],
  ["failed", "Failed"],
  ["lost", "Lost"],
] as const;

type Result = (typeof RESULTS)[number][0];

export function Upkeep() {
  const warehouse = useWarehouse();
  const { result: text = "" } = useSearch({ from: "/w/$warehouse/upkeep" });
  const navigate = useNavigate();
  const result: Result = RESULTS.find(([value]) => value === text)?.[0] ?? "";
  const choose = (chosen: Result) =>
    void navigate({
      to: "/w/$warehouse/upkeep",
      params: { warehouse },
      search: chosen ? { result: chosen } : {},
      replace: true,
    });
  return (
    <div className="body">
      <title>Upkeep · duckicelake</title>
      <Head title="Upkeep" comment={`Jobs on the tables of ${warehouse}, and what the next ones are decided by.`} />
      <Card title="Jobs" aside={<Segments name="Result" value={result} options={RESULTS} choose={choose} />}>
        <Jobs result={result} />
      </Card>
      <Card title="What waits for upkeep">
        <Tables />
      </Card>
      <Card title="What is due, and why">
        <div className="inside stack">
          <p>
            The tables&rsquo; policies decide what is done of it. This command prints each job that is due with its
            reason, and does nothing; without <code>--dry-run</code> it does them.
          </p>
          <Code
            text={writeCommand("pipeline maintain", warehouse, [], { "dry-run": true })}
            what="the command"
            isWrapped
          />
        </div>
      </Card>
    </div>
  );
}

function Jobs({ result }: { result: Result }) {
  const warehouse = useWarehouse();
  const query = useInfiniteQuery(jobsQuery(warehouse, result ? { result } : {}));
  const [shown, setShown] = useState<Job | null>(null);
  const columns: readonly Column<Job>[] = [
    { name: "Started", show: ({ started }) => <Time at={started} /> },
    { name: "What", show: ({ kind }) => formatKind(kind) },
    {
      name: "Table",
      show: ({ namespace, table }) => <TableLink warehouse={warehouse} table={{ namespace, name: table }} />,
    },
    { name: "Result", show: ({ result: text }) => <ResultTag result={text} /> },
    { name: "Took", kind: "number", show: (job) => <Duration job={job} /> },
    { name: "Who", show: ({ principal, engine }) => <span className="breaks">{`${principal} · ${engine}`}</span> },
    {
      name: "Details",
      kind: "hidden",
      show: (job) => (
        <button type="button" className="button small" onClick={() => setShown(job)}>
          Details
        </button>
      ),
    },
  ];
  return (
    <>
      <Loaded query={query}>
        {({ pages }) => {
          const all = pages.flatMap((page) => page.jobs);
          if (all.length === 0)
            return <Empty title="No such jobs">Jobs of the pipeline on tables that you may read.</Empty>;
          return (
            <LongTable
              name="Jobs"
              rows={all}
              columns={columns}
              keyOf={({ id }) => id}
              reachEnd={() => (query.hasNextPage && !query.isFetchingNextPage ? void query.fetchNextPage() : undefined)}
            />
          );
        }}
      </Loaded>
      {shown ? <JobDetails job={shown} close={() => setShown(null)} /> : null}
    </>
  );
}

function Duration({ job: { started, ended } }: { job: Job }) {
  if (!ended) return <>—</>;
  return <>{formatDuration((Date.parse(ended) - Date.parse(started)) / 1000)}</>;
}

function ResultTag({ result }: { result: string }) {
  const kinds: Readonly<Record<string, string>> = { done: "good", running: "accent", failed: "bad", lost: "bad" };
  return <span className={`tag ${kinds[result] ?? ""}`}>{result}</span>;
}

function JobDetails({ job, close }: { job: Job; close: () => void }) {
  return (
    <Dialog label="The job" className="wide" close={close}>
      <div className="inside">
        <h2>
          {formatKind(job.kind)} of {[...job.namespace, job.table].join(".")}
        </h2>
        <Facts
          of={[
            ["Result", <ResultTag result={job.result} />],
            ...(job.message ? ([["Message", job.message]] as const) : []),
            ["Started", <Time at={job.started} isFull />],
            ["Ended", job.ended ? <Time at={job.ended} isFull /> : "—"],
            ["Lease", <Time at={job["lease-until"]} isFull />],
            ["Who", `${job.principal}, ${job.engine}`],
            ["Run", job["run-id"] ?? "—"],
            ["Snapshots", job["snapshot-ids"].join(", ") || "—"],
          ]}
        />
        <Code
          text={JSON.stringify({ parameters: job.parameters, counts: job.counts }, null, 2)}
          what="parameters and counts"
          isWrapped
        />
        <div className="ends">
          <button type="button" className="button" onClick={close}>
            Close
          </button>
        </div>
      </div>
    </Dialog>
  );
}

/** Files of a table that upkeep could make fewer, and rows that it could write to files. */
function weigh(table: Statistics): number {
  return table["small-files"] + table["files-with-deletes"] + table["delete-files"] + table["inlined-rows"] / 1000;
}

function Tables() {
  const warehouse = useWarehouse();
  const query = useInfiniteQuery(allStatisticsQuery(warehouse));
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = query;
  // The largest come first, so all must be here.
  useEffect(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage]);
  const rows = useMemo(() => {
    const all = query.data?.pages.flatMap((page) => page.tables) ?? [];
    return all.filter((table) => weigh(table) > 0).sort((a, b) => weigh(b) - weigh(a));
  }, [query.data]);
  const columns: readonly Column<Statistics>[] = [
    {
      name: "Table",
      show: ({ namespace, table }) => <TableLink warehouse={warehouse} table={{ namespace, name: table }} />,
    },
    { name: "Rows in Postgres", kind: "number", show: (row) => formatCount(row["inlined-rows"]) },
    {
      name: "Small files",
      kind: "number",
      show: (row) => (
        <>
          {formatCount(row["small-files"])} <span className="quiet">{formatBytes(row["small-bytes"])}</span>
        </>
      ),
    },
    { name: "Of files", kind: "number", show: ({ files }) => formatCount(files) },
    { name: "With deletes", kind: "number", show: (row) => formatCount(row["files-with-deletes"]) },
    { name: "Deleted rows", kind: "number", show: ({ deleted }) => formatCount(deleted) },
    { name: "Unsorted", kind: "number", show: (row) => formatBytes(row["unsorted-bytes"]) },
    { name: "Snapshots", kind: "number", show: ({ snapshots }) => formatCount(snapshots) },
    {
      name: "Maintenance",
      show: ({ policies }) =>
        policies["maintenance.enabled"] === "false" ? (
          <span className="tag warn">off</span>
        ) : (
          <span className="tag">on</span>
        ),
    },
  ];
  return (
    <Loaded query={query}>
      {() =>
        rows.length === 0 ? (
          <Empty title="Nothing waits">No table that you may read has small files, deletes, or rows in Postgres.</Empty>
        ) : (
          <LongTable
            name="Tables"
            rows={rows}
            columns={columns}
            keyOf={({ namespace, table }) => JSON.stringify([namespace, table])}
          />
        )
      }
    </Loaded>
  );
}
