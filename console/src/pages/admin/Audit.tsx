// The audit trail: who asked for what, when, from where and with what result; new entries as they come.
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { type AuditEntry, type AuditFilter, useAudit } from "../../api/operation.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { Code } from "../../parts/Copy.tsx";
import { writeCommand } from "../../parts/command.ts";
import { Details } from "../../parts/Details.tsx";
import { CheckField, ChoiceField, TextField } from "../../parts/fields.tsx";
import { formatKind, plural } from "../../parts/format.ts";
import { Live } from "../../parts/live.tsx";
import { type Column, LongTable } from "../../parts/LongTable.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";

const RESULTS = [
  ["", "Any"],
  ["ok", "Done"],
  ["unchanged", "Unchanged"],
  ["ForbiddenException", "Refused"],
  ["BadRequestException", "Bad request"],
  ["CommitFailedException", "Overtaken"],
] as const;

const AGES = [
  ["", "Any time"],
  ["1", "Last hour"],
  ["24", "Last day"],
  ["168", "Last week"],
  ["720", "Last 30 days"],
] as const;

const HOUR_MS = 3_600_000;

export function Audit() {
  const warehouse = useWarehouse();
  const { hours, ...words } = useSearch({ from: "/w/$warehouse/audit" });
  const [isLive, setLive] = useState(true);
  const [opened] = useState(Date.now());
  const filter: AuditFilter = hours
    ? { ...words, since: new Date(opened - Number(hours) * HOUR_MS).toISOString() }
    : words;
  const { query, isFollowing } = useAudit(warehouse, filter, isLive);
  const [shown, setShown] = useState<AuditEntry | null>(null);
  return (
    <div className="body">
      <title>Audit · duckicelake</title>
      <Head title="Audit" comment={`Who changed what in ${warehouse}, when, from where, and what was refused.`}>
        <CheckField name="Follow" isOn={isLive} change={setLive} />
        <Live isLive={isFollowing} />
      </Head>
      <Filter key={JSON.stringify([words, hours])} words={words} hours={hours ?? ""} />
      <Card>
        <Loaded query={query} lines={12}>
          {({ pages }) => {
            const entries = pages.flatMap((page) => page.entries.toReversed());
            if (entries.length === 0) return <NoEntries isFiltered={Boolean(hours) || Object.keys(words).length > 0} />;
            return (
              <>
                <LongTable
                  name="Audit trail"
                  rows={entries}
                  columns={columnsOf(setShown)}
                  keyOf={({ id }) => String(id)}
                  reachEnd={() =>
                    query.hasNextPage && !query.isFetchingNextPage ? void query.fetchNextPage() : undefined
                  }
                />
                <p className="inside small quiet" role="status">
                  {plural(entries.length, "entry", "entries")}
                  {query.hasNextPage ? " so far" : ""}
                </p>
              </>
            );
          }}
        </Loaded>
      </Card>
      {shown ? <EntryDetails entry={shown} close={() => setShown(null)} /> : null}
    </div>
  );
}

function NoEntries({ isFiltered }: { isFiltered: boolean }) {
  const warehouse = useWarehouse();
  if (!isFiltered) return <Empty title="No entries yet">Each request that changes something has one.</Empty>;
  return (
    <Empty title="No such entries">
      <Link to="/w/$warehouse/audit" params={{ warehouse }}>
        All entries
      </Link>
    </Empty>
  );
}

function Filter({ words, hours: firstHours }: { words: AuditFilter; hours: string }) {
  const warehouse = useWarehouse();
  const navigate = useNavigate();
  const [principal, setPrincipal] = useState(words.principal ?? "");
  const [operation, setOperation] = useState(words.operation ?? "");
  const [resource, setResource] = useState(words.resource ?? "");
  const [result, setResult] = useState(words.result ?? "");
  const [hours, setHours] = useState(firstHours);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const all = { principal, operation, resource, result, hours };
    const search = Object.fromEntries(Object.entries(all).filter(([, value]) => value));
    void navigate({ to: "/w/$warehouse/audit", params: { warehouse }, search });
  };
  const results = RESULTS.some(([value]) => value === result) ? RESULTS : [...RESULTS, [result, result] as const];
  return (
    <form className="row ends" onSubmit={submit}>
      <TextField name="Who" value={principal} change={setPrincipal} />
      <TextField name="Operation" placeholder="commit_table" value={operation} change={setOperation} isMono />
      <TextField name="On" placeholder="sales.orders" value={resource} change={setResource} isMono />
      <ChoiceField<string> name="Result" value={result} options={results} change={setResult} />
      <ChoiceField<string> name="When" value={hours} options={AGES} change={setHours} />
      <button className="button">Show</button>
    </form>
  );
}

function columnsOf(open: (entry: AuditEntry) => void): readonly Column<AuditEntry>[] {
  return [
    { name: "When", show: ({ at }) => <Time at={at} /> },
    { name: "Who", show: ({ principal }) => <span className="breaks">{principal}</span> },
    { name: "What", show: ({ operation }) => formatKind(operation) },
    { name: "On", show: ({ resource }) => <span className="mono breaks">{resource}</span> },
    { name: "Result", show: ({ result }) => <ResultTag result={result} /> },
    { name: "From", show: ({ address }) => <span className="mono">{address}</span> },
    {
      name: "Details",
      kind: "hidden",
      show: (entry) => (
        <button
          type="button"
          className="button small"
          aria-label={`Details of entry ${entry.id}`}
          onClick={() => open(entry)}
        >
          Details
        </button>
      ),
    },
  ];
}

function ResultTag({ result }: { result: string }) {
  const kind = result === "ok" ? "good" : result === "unchanged" ? "" : "bad";
  return <span className={`tag ${kind}`}>{result}</span>;
}

function EntryDetails({ entry, close }: { entry: AuditEntry; close: () => void }) {
  const warehouse = useWarehouse();
  return (
    <Details
      label={`Entry ${entry.id}`}
      title={formatKind(entry.operation)}
      close={close}
      of={[
        ["When", <Time at={entry.at} isFull />],
        ["Who", entry.principal],
        ["On", <span className="mono">{entry.resource || "—"}</span>],
        ["Result", <ResultTag result={entry.result} />],
        ["From", <span className="mono">{entry.address}</span>],
        ["Request", <span className="mono">{entry["request-id"]}</span>],
        ["Snapshot", entry["snapshot-id"] ?? "—"],
      ]}
    >
      {entry.detail ? <Code text={JSON.stringify(entry.detail, null, 2)} what="the details" /> : null}
      {entry.client ? <Code text={JSON.stringify(entry.client, null, 2)} what="the client" /> : null}
      <Code
        text={writeCommand("audit", warehouse, [], { operation: entry.operation, principal: entry.principal })}
        what="the command that lists entries like it"
      />
    </Details>
  );
}
