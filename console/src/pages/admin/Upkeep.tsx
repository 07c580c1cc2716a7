// Upkeep of a warehouse: what is due and why, what its workers do, jobs that ran, and by what it is decided.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { type PlannedJob, planQuery, type UpkeepTask, upkeepQuery } from "../../api/operation.ts";
import { useAllPages } from "../../api/pages.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { Details, StateTag } from "../../parts/Details.tsx";
import { formatBytes, formatCount, formatDuration, formatKind, plural } from "../../parts/format.ts";
import { TableLink } from "../../parts/links.tsx";
import { type Column, LongTable } from "../../parts/LongTable.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";
import { AutomaticUpkeep, RequestUpkeep } from "./upkeepActs.tsx";
import { Jobs, listValues } from "./upkeepJobs.tsx";
import { Tables } from "./upkeepTables.tsx";

export function Upkeep() {
  const warehouse = useWarehouse();
  const [isAsking, setAsking] = useState(false);
  // The cards below the queue are asked for at once, and shown once its height is known: else it would move them.
  const isQueueKnown = !useInfiniteQuery(upkeepQuery(warehouse)).isPending;
  useInfiniteQuery(planQuery(warehouse));
  return (
    <div className="body">
      <title>Upkeep · duckicelake</title>
      <Head title="Upkeep" comment={`What the tables of ${warehouse} need now, and the jobs that ran on them.`}>
        <button type="button" className="button" onClick={() => setAsking(true)}>
          Do what is due
        </button>
      </Head>
      <AutomaticUpkeep />
      <Queue />
      {isQueueKnown ? (
        <>
          <Plan />
          <Jobs />
          <Tables />
        </>
      ) : null}
      {isAsking ? <RequestUpkeep warehouse={warehouse} close={() => setAsking(false)} /> : null}
    </div>
  );
}

/** Whether the lake does a job by itself, or on request; what deletes for ever has to be named. */
function formatDecision(job: PlannedJob): string {
  return job["is-automatic"] ? "yes" : job["is-chosen"] ? "on request" : "when it is named";
}

/** When a job is due: now, at a time, or (nothing) after a change. */
function DueTime({ job }: { job: PlannedJob }) {
  const { next } = job;
  if (next && Date.parse(next) > Date.now()) return <Time at={next} />;
  return job["is-due"] || next ? <>now</> : null;
}

/** For how long a job has been due, where that is known. */
const formatBehind = (job: PlannedJob): string =>
  job["behind-seconds"] == null ? "" : formatDuration(job["behind-seconds"]);

/** How many times as fast something is afterwards, if it is. */
const formatSpeedup = (times: number): string => (times >= 1.05 ? `${times.toFixed(1)}×` : "");

/** What maintenance would do now and why. Pages come one after the other, and what is known of them is shown. */
function Plan() {
  const warehouse = useWarehouse();
  const query = useInfiniteQuery(planQuery(warehouse));
  const isWhole = useAllPages(query);
  const [asked, setAsked] = useState<PlannedJob | null>(null);
  const pages = query.data?.pages ?? [];
  const jobs = pages.flatMap((page) => page.jobs);
  const due = jobs.filter((job) => job["is-due"]).length;
  const examined = plural(
    pages.reduce((sum, page) => sum + page.tables, 0),
    "table",
  );
  const columns: readonly Column<PlannedJob>[] = [
    {
      name: "Table",
      show: ({ namespace, table }) => <TableLink warehouse={warehouse} table={{ namespace, name: table }} />,
    },
    { name: "Job", show: ({ kind }) => formatKind(kind) },
    { name: "Due", show: (job) => <DueTime job={job} /> },
    { name: "Due for", kind: "number", show: formatBehind },
    {
      name: "Why",
      show: ({ why, source }) => <div className="wide-text">{source ? `${why} (${source})` : why}</div>,
    },
    {
      name: "Reads",
      kind: "number",
      show: ({ estimate, source }) => (source == null ? formatBytes(estimate["bytes-read"]) : ""),
    },
    {
      name: "Files saved",
      kind: "number",
      show: ({ estimate, source }) => (source == null ? formatCount(estimate["files-saved"]) : ""),
    },
    { name: "Faster scans", kind: "number", show: ({ estimate }) => formatSpeedup(estimate["scan-speedup"]) },
    { name: "Faster plans", kind: "number", show: ({ estimate }) => formatSpeedup(estimate["planning-speedup"]) },
    {
      name: "Automatic",
      show: (job) => <span className={job["is-automatic"] ? "tag accent" : "tag"}>{formatDecision(job)}</span>,
    },
    {
      name: "Do it",
      kind: "hidden",
      show: (job) => (
        <button type="button" className="button small" onClick={() => setAsked(job)}>
          Do it
        </button>
      ),
    },
  ];
  return (
    <Card
      title="Due now or next"
      aside={
        <span className="quiet small" role="status">
          {isWhole ? `${plural(due, "job")} due; ${examined} examined` : `${examined} examined so far…`}
        </span>
      }
    >
      <Loaded query={query} lines={8}>
        {() => (
          <>
            {pages
              .flatMap((page) => page.problems)
              .map((problem) => (
                <p key={problem} className="banner bad breaks">
                  {problem}
                </p>
              ))}
            {jobs.length > 0 ? (
              <LongTable
                name="Due now or next"
                rows={jobs}
                columns={columns}
                keyOf={({ namespace, table, kind }) => JSON.stringify([namespace, table, kind])}
              />
            ) : (
              <Empty title={isWhole ? "Nothing is due" : "Nothing so far"}>
                By the catalog&rsquo;s statistics and each table&rsquo;s policies.
              </Empty>
            )}
          </>
        )}
      </Loaded>
      {asked ? <RequestUpkeep warehouse={warehouse} job={asked} close={() => setAsked(null)} /> : null}
    </Card>
  );
}

/** What the lake's own workers do, and what waits, is blocked or has failed. */
function Queue() {
  const warehouse = useWarehouse();
  const query = useInfiniteQuery(upkeepQuery(warehouse));
  const [shown, setShown] = useState<UpkeepTask | null>(null);
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
    {
      name: "Details",
      kind: "hidden",
      show: (task) => (
        <button type="button" className="button small" onClick={() => setShown(task)}>
          Details
        </button>
      ),
    },
  ];
  return (
    <Card title="Queue">
      <Loaded query={query} lines={3}>
        {({ pages }) => {
          const tasks = pages.flatMap((page) => page.tasks);
          return (
            <>
              {pages
                .flatMap((page) => page.warnings)
                .map((warning) => (
                  <p key={warning} className="banner bad breaks">
                    {warning}
                  </p>
                ))}
              {tasks.length === 0 ? (
                <Empty title="The queue is empty">Tasks that the lake&rsquo;s own workers do are listed here.</Empty>
              ) : (
                <LongTable
                  name="Queue"
                  rows={tasks}
                  columns={columns}
                  keyOf={({ id }) => String(id)}
                  reachEnd={() =>
                    query.hasNextPage && !query.isFetchingNextPage ? void query.fetchNextPage() : undefined
                  }
                />
              )}
            </>
          );
        }}
      </Loaded>
      {shown ? <TaskDetails task={shown} close={() => setShown(null)} /> : null}
    </Card>
  );
}

function TaskDetails({ task, close }: { task: UpkeepTask; close: () => void }) {
  return (
    <Details
      label="The task"
      title={`${formatKind(task.kind)} of ${[...task.namespace, task.table].join(".")}`}
      close={close}
      of={[
        ["State", <StateTag state={task.state} />],
        ["Why", task.why],
        ...(task.message ? ([["Message", task.message]] as const) : []),
        ["Asked for by", task["requested-by"] ?? "the plan"],
        ["Attempts", formatCount(task.attempts)],
        ["Created", <Time at={task.created} isFull />],
        ["Not before", <Time at={task.available} isFull />],
        ["Worker", task.worker ?? "—"],
        ["Lease", task["lease-until"] ? <Time at={task["lease-until"]} isFull /> : "—"],
        ...listValues(task.estimate),
        ...listValues(task.counts),
      ]}
    />
  );
}
