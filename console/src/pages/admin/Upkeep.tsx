// Upkeep of a warehouse: what is due and why, jobs that ran, and by what the next ones are decided.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import {
  allStatisticsQuery,
  type Job,
  jobsQuery,
  type PlannedJob,
  planQuery,
  type Statistics,
  type UpkeepTask,
  upkeepQuery,
} from "../../api/operation.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { Code, Copy } from "../../parts/Copy.tsx";
import { commandName, writeCommand } from "../../parts/command.ts";
import { Dialog } from "../../parts/Dialog.tsx";
import { Facts } from "../../parts/Facts.tsx";
import { Segments } from "../../parts/fields.tsx";
import { formatBytes, formatCount, formatDuration, formatKind, plural } from "../../parts/format.ts";
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
      <Head title="Upkeep" comment={`What the tables of ${warehouse} need now, and the jobs that ran on them.`} />
      <Card title="Due now">
        <Plan />
      </Card>
      <Card title="Queue">
        <Queue />
      </Card>
      <Card title="Jobs" aside={<Segments name="Result" value={result} options={RESULTS} choose={choose} />}>
        <Jobs result={result} />
      </Card>
      <Card title="What the plan is decided by">
        <Tables />
      </Card>
    </div>
  );
}

/** Whether the lake does a job by itself, or on request; what deletes for ever has to be named. */
function formatDecision(job: PlannedJob): string {
  return job["is-automatic"] ? "yes" : job["is-chosen"] ? "no" : "no, and only where it is named";
}

/** What maintenance would do now, why, and by which command. */
function Plan() {
  const warehouse = useWarehouse();
  const query = useInfiniteQuery(planQuery(warehouse));
  useAllPages(query);
  const columns: readonly Column<PlannedJob>[] = [
    {
      name: "Table",
      show: ({ namespace, table }) => <TableLink warehouse={warehouse} table={{ namespace, name: table }} />,
    },
    { name: "Job", show: ({ kind }) => formatKind(kind) },
    { name: "Why", show: ({ why }) => <div className="wide-text">{why}</div> },
    { name: "Reads", kind: "number", show: ({ estimate }) => formatBytes(estimate["bytes-read"]) },
    { name: "Files saved", kind: "number", show: ({ estimate }) => formatCount(estimate["files-saved"]) },
    { name: "By itself", show: (job) => <span className="tag">{formatDecision(job)}</span> },
    {
      name: "Command",
      kind: "hidden",
      show: ({ namespace, table, kind }) => (
        <Copy text={writeMaintenance(warehouse, [...namespace, table], kind)} what="the command of this job" />
      ),
    },
  ];
  return (
    <Loaded query={query}>
      {({ pages }) => {
        const jobs = pages.flatMap((page) => page.jobs);
        const problems = pages.flatMap((page) => page.problems);
        const examined = plural(
          pages.reduce((sum, page) => sum + page.tables, 0),
          "table",
        );
        return (
          <>
            {problems.map((problem) => (
              <p key={problem} className="banner bad breaks">
                {problem}
              </p>
            ))}
            {jobs.length === 0 ? (
              <Empty title="Nothing is due">
                {examined} examined, by the catalog&rsquo;s statistics and each table&rsquo;s policies.
              </Empty>
            ) : (
              <>
                <LongTable
                  name="Due now"
                  rows={jobs}
                  columns={columns}
                  keyOf={({ namespace, table, kind }) => JSON.stringify([namespace, table, kind])}
                />
                <div className="inside stack">
                  <p>
                    {plural(jobs.length, "job")}; {examined} examined. This command does them, each with a lease on its
                    table.
                  </p>
                  <Code text={writeMaintenance(warehouse, [])} what="the command" isWrapped />
                </div>
              </>
            )}
          </>
        );
      }}
    </Loaded>
  );
}

function writeMaintenance(warehouse: string, table: readonly string[], kind?: string): string {
  const given = table.length > 0 ? [commandName(table)] : [];
  return writeCommand("pipeline maintain", warehouse, given, { only: kind });
}

/** Ask for all pages: the whole is sorted, or counted. */
function useAllPages(query: { hasNextPage: boolean; isFetchingNextPage: boolean; fetchNextPage: () => unknown }): void {
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = query;
  useEffect(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage]);
}

/** What the lake's own workers do, and what waits, is blocked or has failed. */
function Queue() {
  const warehouse = useWarehouse();
  const query = useInfiniteQuery(upkeepQuery(warehouse));
  useAllPages(query);
  const columns: readonly Column<UpkeepTask>[] = [
    {
      name: "Table",
      show: ({ namespace, table }) => <TableLink warehouse={warehouse} table={{ namespace, name: table }} />,
    },
    { name: "Task", show: ({ kind }) => formatKind(kind) },
    { name: "State", show: ({ state }) => <StateTag state={state} /> },
    { name: "Why", show: ({ why, message }) => <div className="wide-text">{message ?? why}</div> },
    { name: "Attempts", kind: "number", show: ({ attempts }) => formatCount(attempts) },
    { name: "Since", show: ({ changed }) => <Time at={changed} /> },
  ];
  return (
    <Loaded query={query}>
      {({ pages }) => {
        const tasks = pages.flatMap((page) => page.tasks);
        if (tasks.length === 0)
          return <Empty title="The queue is empty">Tasks that the lake&rsquo;s own workers do are listed here.</Empty>;
        return <LongTable name="Queue" rows={tasks} columns={columns} keyOf={({ id }) => String(id)} />;
      }}
    </Loaded>
  );
}

function StateTag({ state }: { state: string }) {
  const kinds: Readonly<Record<string, string>> = { done: "good", running: "accent", blocked: "bad", failed: "bad" };
  return <span className={`tag ${kinds[state] ?? ""}`}>{state}</span>;
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
            ...listValues(job.parameters),
            ...listValues(job.counts),
          ]}
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

/** What a job was given, or counted, by name. */
function listValues(of: Readonly<Record<string, unknown>>): readonly (readonly [name: string, value: string])[] {
  return Object.entries(of).map(([name, value]) => [formatKind(name), showValue(value)]);
}

function showValue(value: unknown): string {
  if (typeof value === "number") return formatCount(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Files of a table that upkeep could make fewer, and rows that it could write to files. */
function weigh(table: Statistics): number {
  return table["small-files"] + table["files-with-deletes"] + table["delete-files"] + table["inlined-rows"] / 1000;
}

function Tables() {
  const warehouse = useWarehouse();
  const query = useInfiniteQuery(allStatisticsQuery(warehouse));
  useAllPages(query);
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
