// The first page: how to connect, whether all is well, what is new, and where to begin on an empty lake.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { serverUrl } from "../api/address.ts";
import { callerQuery, historyQuery, namespacesQuery, readinessQuery } from "../api/queries.ts";
import { Card, Head } from "../parts/Card.tsx";
import { Code } from "../parts/Copy.tsx";
import { Empty, Loaded, Trouble } from "../parts/Notice.tsx";
import { HistoryList } from "../parts/HistoryList.tsx";
import { useWarehouse } from "../shell/Frame.tsx";
import { NewLink } from "./acts/namespace.tsx";
import { snippetsFor } from "./snippets.ts";

const NEWEST = 8;

export function Home() {
  const warehouse = useWarehouse();
  const { data: namespaces } = useInfiniteQuery(namespacesQuery(warehouse, []));
  const isEmpty = namespaces?.pages[0]?.namespaces.every(([name]) => name === "main") ?? false;
  return (
    <div className="body">
      <title>{`${warehouse} · duckicelake`}</title>
      <Head title={warehouse} comment={`A warehouse of ${serverUrl}`}>
        <Link to="/w/$warehouse/tables" params={{ warehouse }} className="button">
          Browse tables
        </Link>
      </Head>
      <div className="columns wide-first">
        <div className="stack">
          {isEmpty ? <FirstStep warehouse={warehouse} /> : null}
          <Connect warehouse={warehouse} />
          <Newest warehouse={warehouse} />
        </div>
        <div className="stack">
          <Health warehouse={warehouse} />
        </div>
      </div>
    </div>
  );
}

function FirstStep({ warehouse }: { warehouse: string }) {
  const place = warehouse === "duckicelake" ? "v1" : `v1/${warehouse}`;
  const curl = `curl ${serverUrl}${place}/namespaces --json '{"namespace": ["sales"]}'
curl ${serverUrl}${place}/namespaces/sales/tables --json '{"name": "orders", "schema":
  {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": true}]}}'
curl ${serverUrl}${place}/namespaces/sales/tables/orders/rows --json '[{"id": 1}, {"id": 2}]'`;
  return (
    <Card title="A first table">
      <div className="inside stack">
        <p>
          This lake has no tables yet. Make a namespace and a table here, connect an engine below and create one with
          it, or take these three requests: a namespace, a table in it, and two rows.
        </p>
        <div className="row">
          <NewLink warehouse={warehouse} inside={[]} kind="namespace" />
          <NewLink warehouse={warehouse} inside={["main"]} kind="table" />
        </div>
        <Code text={curl} what="the requests" />
      </div>
    </Card>
  );
}

function Connect({ warehouse }: { warehouse: string }) {
  const { data: caller } = useQuery(callerQuery(warehouse));
  const snippets = snippetsFor(warehouse, caller?.["is-authenticated"] ?? false);
  const [engine, setEngine] = useState(snippets[0]!.engine);
  const shown = snippets.find((snippet) => snippet.engine === engine) ?? snippets[0]!;
  return (
    <Card title="Connect">
      <div className="inside stack">
        <div className="row" role="group" aria-label="Engine">
          {snippets.map((snippet) => (
            <button
              key={snippet.engine}
              type="button"
              className={snippet === shown ? "button small primary" : "button small"}
              aria-pressed={snippet === shown}
              onClick={() => setEngine(snippet.engine)}
            >
              {snippet.engine}
            </button>
          ))}
        </div>
        <Code text={shown.text} what={`the ${shown.language} for ${shown.engine}`} />
        <p className="small quiet">
          {caller?.["is-authenticated"]
            ? "Put a client's id and secret where it says ID and SECRET. "
            : "This server asks for no login. "}
          DuckDB can also attach the lake itself: <code>duckicelake info</code> prints how.
        </p>
      </div>
    </Card>
  );
}

function Health({ warehouse }: { warehouse: string }) {
  const readiness = useQuery(readinessQuery());
  const { data: caller } = useQuery(callerQuery(warehouse));
  return (
    <Card
      title="Health"
      aside={
        readiness.data ? (
          <span className="tag good">Ready</span>
        ) : readiness.error ? (
          <span className="tag bad">Not ready</span>
        ) : null
      }
    >
      <div className="inside stack">
        {readiness.error ? (
          <Trouble error={readiness.error} retry={() => void readiness.refetch()} />
        ) : (
          <p className="quiet">
            {readiness.data ? "Postgres and the object store answer." : "Asking Postgres and the object store…"}
          </p>
        )}
        {caller?.["is-admin"] ? (
          <p>
            <Link to="/w/$warehouse/doctor" params={{ warehouse }}>
              Examine the catalog
            </Link>
          </p>
        ) : null}
      </div>
    </Card>
  );
}

function Newest({ warehouse }: { warehouse: string }) {
  const history = useInfiniteQuery(historyQuery(warehouse, { of: {}, filter: {}, limit: NEWEST }));
  return (
    <Card title="What is new">
      <Loaded query={history}>
        {({ pages }) => {
          const entries = pages[0]?.history ?? [];
          if (entries.length === 0) {
            return <Empty title="Nothing has happened yet">Changes of tables appear here, whoever makes them.</Empty>;
          }
          return <HistoryList warehouse={warehouse} entries={entries} />;
        }}
      </Loaded>
    </Card>
  );
}
