// Row filters and column masks: which there are, on what, for whom; and what a principal sees of a table.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { ApiError } from "../../api/client.ts";
import { type ColumnTag, columnTagsQuery, policiesQuery, type Policy } from "../../api/governance.ts";
import { type GovernedObject, readObject } from "../../api/objects.ts";
import { callerQuery } from "../../api/queries.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { type Column, LongTable } from "../../parts/LongTable.tsx";
import { Empty, Failed, Loaded } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";
import { ObjectField, ObjectLink, PrincipalName } from "./objects.tsx";
import { AddPolicy, DropPolicy, TagColumn, UntagColumn } from "./policyActs.tsx";
import { Seen } from "./Seen.tsx";

export function Policies() {
  const warehouse = useWarehouse();
  const { on } = useSearch({ from: "/w/$warehouse/policies" });
  const { data: caller } = useQuery(callerQuery(warehouse));
  const [open, setOpen] = useState<"policy" | "tag" | null>(null);
  const table = on ? readObject(on) : null;
  const { error, refetch } = useInfiniteQuery(policiesQuery(warehouse, on));
  const isMissing = error instanceof ApiError && error.status === 404;
  return (
    <div className="body">
      <title>Policies · duckicelake</title>
      <Head
        title="Policies"
        comment={`Row filters and column masks in ${warehouse}. They count whether or not grants are on.`}
      >
        <button type="button" className="button" onClick={() => setOpen("tag")}>
          Tag a column
        </button>
        <button type="button" className="button primary" onClick={() => setOpen("policy")}>
          Add a policy
        </button>
      </Head>
      <Filter key={on} on={on ?? ""} />
      {on && table?.kind !== "table" ? (
        <Card>
          <Empty title="That is no table">Write it as table:sales.orders.</Empty>
        </Card>
      ) : isMissing ? (
        <Failed error={error} retry={() => void refetch()} />
      ) : (
        <>
          <PolicyList on={on} />
          {on && table && caller?.["is-admin"] ? <Seen warehouse={warehouse} table={table} on={on} /> : null}
          <TagList on={on} />
        </>
      )}
      {open === "policy" ? <AddPolicy warehouse={warehouse} on={on ?? ""} close={() => setOpen(null)} /> : null}
      {open === "tag" ? <TagColumn warehouse={warehouse} on={on ?? ""} close={() => setOpen(null)} /> : null}
    </div>
  );
}

function Filter({ on: first }: { on: string }) {
  const warehouse = useWarehouse();
  const navigate = useNavigate();
  const [on, setOn] = useState(first);
  const show = (text: string) =>
    void navigate({ to: "/w/$warehouse/policies", params: { warehouse }, search: text ? { on: text } : {} });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    show(on);
  };
  return (
    <form className="row ends" onSubmit={submit}>
      <ObjectField warehouse={warehouse} name="Of a table" value={on} change={setOn} kinds={["table"]} />
      <button className="button">Show</button>
      {first ? (
        <button type="button" className="button plain" onClick={() => show("")}>
          All
        </button>
      ) : null}
    </form>
  );
}

/** What of a policy or tag says where it is. */
function TableOf({ table, isLive }: { table: Policy["table"]; isLive: boolean }) {
  const warehouse = useWarehouse();
  if (!table) return null;
  const object: GovernedObject = { kind: "table", namespace: table.namespace, name: table.name };
  return isLive ? (
    <ObjectLink warehouse={warehouse} object={object} />
  ) : (
    <span className="breaks">
      {[...table.namespace, table.name].join(".")} <span className="tag warn">dropped</span>
    </span>
  );
}

function PolicyList({ on }: { on: string | undefined }) {
  const warehouse = useWarehouse();
  const query = useInfiniteQuery(policiesQuery(warehouse, on));
  const { data: caller } = useQuery(callerQuery(warehouse));
  const [dropped, setDropped] = useState<Policy | null>(null);
  const isAdmin = caller?.["is-admin"] ?? false;
  const columns: readonly Column<Policy>[] = [
    { name: "Name", show: ({ name }) => <strong className="breaks">{name}</strong> },
    { name: "What it does", show: (policy) => <PolicyEffect policy={policy} /> },
    {
      name: "On what",
      show: (policy) =>
        policy.tag ? (
          <>
            columns tagged <span className="tag accent">{policy.tag}</span>
          </>
        ) : (
          <TableOf table={policy.table} isLive={policy["is-live"]} />
        ),
    },
    { name: "For", show: ({ to }) => <People of={to} none="everyone" isAdmin={isAdmin} /> },
    { name: "Not for", show: ({ exempt }) => <People of={exempt} none="—" isAdmin={isAdmin} /> },
    {
      name: "Added",
      show: (policy) => (
        <span className="small quiet">
          <Time at={policy["created-at"]} /> by {policy["created-by"]}
        </span>
      ),
    },
    {
      name: "Drop",
      kind: "hidden",
      show: (policy) => (
        <button
          type="button"
          className="button small"
          aria-label={`Drop ${policy.name}`}
          onClick={() => setDropped(policy)}
        >
          Drop
        </button>
      ),
    },
  ];
  return (
    <Card title={on ? "Policies of the table" : "All policies"}>
      <Loaded query={query}>
        {({ pages }) => {
          const all = pages.flatMap((page) => page.policies);
          if (all.length === 0) {
            return (
              <Empty title="No policies that you may manage">What is granted is shown whole, rows and columns.</Empty>
            );
          }
          return (
            <LongTable
              name="Policies"
              rows={all}
              columns={columns}
              keyOf={({ id }) => id}
              reachEnd={() => (query.hasNextPage && !query.isFetchingNextPage ? void query.fetchNextPage() : undefined)}
            />
          );
        }}
      </Loaded>
      {dropped ? <DropPolicy warehouse={warehouse} policy={dropped} close={() => setDropped(null)} /> : null}
    </Card>
  );
}

function PolicyEffect({ policy: { condition, mask, column } }: { policy: Policy }) {
  if (condition) {
    return (
      <>
        shows rows where <code className="breaks">{condition}</code>
      </>
    );
  }
  return (
    <>
      masks {column ? <code>{column}</code> : "them"} by <code className="nowrap">{mask}</code>
    </>
  );
}

function People({ of, none, isAdmin }: { of: readonly string[]; none: string; isAdmin: boolean }) {
  if (of.length === 0) return <span className="quiet">{none}</span>;
  return (
    <span className="tags">
      {of.map((name) => (
        <span key={name} className="tag">
          <PrincipalName name={name} isAdmin={isAdmin} />
        </span>
      ))}
    </span>
  );
}

function TagList({ on }: { on: string | undefined }) {
  const warehouse = useWarehouse();
  const query = useInfiniteQuery(columnTagsQuery(warehouse, on));
  const [taken, setTaken] = useState<ColumnTag | null>(null);
  const columns: readonly Column<ColumnTag>[] = [
    { name: "Tag", show: ({ tag }) => <span className="tag accent">{tag}</span> },
    { name: "Table", show: (row) => <TableOf table={row.table} isLive={row["is-live"]} /> },
    { name: "Column", show: ({ column }) => <code className="breaks">{column}</code> },
    {
      name: "Take away",
      kind: "hidden",
      show: (row) => (
        <button
          type="button"
          className="button small"
          aria-label={`Take away ${row.tag} from ${row.column}`}
          onClick={() => setTaken(row)}
        >
          Take away
        </button>
      ),
    },
  ];
  return (
    <Card title="Tagged columns">
      <Loaded query={query} lines={3}>
        {({ pages }) => {
          const all = pages.flatMap((page) => page.tags);
          if (all.length === 0)
            return <Empty title="No column is tagged">A mask of a tag counts for all columns that have it.</Empty>;
          return (
            <LongTable
              name="Tagged columns"
              rows={all}
              columns={columns}
              keyOf={(row) => JSON.stringify([row.tag, row.table, row.column])}
              reachEnd={() => (query.hasNextPage && !query.isFetchingNextPage ? void query.fetchNextPage() : undefined)}
            />
          );
        }}
      </Loaded>
      {taken ? <UntagColumn warehouse={warehouse} tagged={taken} close={() => setTaken(null)} /> : null}
    </Card>
  );
}
