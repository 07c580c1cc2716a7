// Jobs of upkeep and of the pipeline that run or ran, newest first.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { type Job, jobsQuery } from "../../api/operation.ts";
import { Card } from "../../parts/Card.tsx";
import { Details, StateTag } from "../../parts/Details.tsx";
import { Segments } from "../../parts/fields.tsx";
import { formatCount, formatDuration, formatKind } from "../../parts/format.ts";
import { TableLink } from "../../parts/links.tsx";
import { type Column, LongTable } from "../../parts/LongTable.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";

const RESULTS = [
  ["", "All"],
  ["running", "Running"],
  ["done", "Done"],
  ["unchanged", "Unchanged"],
  ["skipped", "Skipped"],
  ["failed", "Failed"],
  ["lost", "Lost"],
] as const;

type Result = (typeof RESULTS)[number][0];

export function Jobs() {
  const warehouse = useWarehouse();
  const { result: text = "" } = useSearch({ from: "/w/$warehouse/upkeep" });
  const navigate = useNavigate();
  const result: Result = RESULTS.find(([value]) => value === text)?.[0] ?? "";
  const choose = (chosen: Result) =>
    void navigate({
      to: "/w/$warehouse/upkeep",
      params: { warehouse },
      search: ({ result: _, ...rest }) => (chosen ? { ...rest, result: chosen } : rest),
      replace: true,
    });
  return (
    <Card title="Jobs" aside={<Segments name="Result" value={result} options={RESULTS} choose={choose} />}>
      <JobList result={result} />
    </Card>
  );
}

function JobList({ result }: { result: Result }) {
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
    { name: "Result", show: ({ result: text }) => <StateTag state={text} /> },
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

function JobDetails({ job, close }: { job: Job; close: () => void }) {
  return (
    <Details
      label="The job"
      title={`${formatKind(job.kind)} of ${[...job.namespace, job.table].join(".")}`}
      close={close}
      of={[
        ["Result", <StateTag state={job.result} />],
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
  );
}

/** What a job was given, or counted, by name. */
export function listValues(of: Readonly<Record<string, unknown>>): readonly (readonly [name: string, value: string])[] {
  return Object.entries(of).map(([name, value]) => [formatKind(name), showValue(value)]);
}

function showValue(value: unknown): string {
  if (typeof value === "number") return formatCount(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}
