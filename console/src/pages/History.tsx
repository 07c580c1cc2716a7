// All changes of the lake, by whom and with what.
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { historyQuery } from "../api/queries.ts";
import { Card, Head } from "../parts/Card.tsx";
import { HistoryList, OlderChanges } from "../parts/HistoryList.tsx";
import { Empty, Loaded } from "../parts/Notice.tsx";
import { Live, useLiveChanges } from "../parts/live.tsx";
import { useWarehouse } from "../shell/Frame.tsx";

const SOURCES = ["rest", "duckdb", "pipeline"] as const;
const KINDS = ["append", "delete", "overwrite", "replace", "create-table", "alter-table", "drop-table"] as const;

export function History() {
  const warehouse = useWarehouse();
  const { kind, source, principal } = useSearch({ from: "/w/$warehouse/history" });
  const navigate = useNavigate();
  const filter = {
    ...(kind ? { kind } : {}),
    ...(source ? { source } : {}),
    ...(principal ? { principal } : {}),
  };
  const asked = { of: {}, filter };
  const query = useInfiniteQuery(historyQuery(warehouse, asked));
  const isLive = useLiveChanges(warehouse, asked);
  const choose = (changed: { kind?: string; source?: string; principal?: string }) => {
    const next = Object.fromEntries(Object.entries({ ...filter, ...changed }).filter(([, value]) => value));
    void navigate({ to: "/w/$warehouse/history", params: { warehouse }, search: next, replace: true });
  };
  return (
    <div className="body">
      <title>History · duckicelake</title>
      <Head title="History" comment="Who changed what, when and how: Iceberg clients, DuckDB, the pipeline." />
      <div className="row">
        <Choice name="Kind" value={kind} options={KINDS} choose={(chosen) => choose({ kind: chosen })} />
        <Choice name="Source" value={source} options={SOURCES} choose={(chosen) => choose({ source: chosen })} />
        <input
          type="search"
          aria-label="Principal"
          placeholder="Principal"
          defaultValue={principal ?? ""}
          onKeyDown={({ key, currentTarget }) => {
            if (key === "Enter") choose({ principal: currentTarget.value.trim() });
          }}
          onBlur={({ target }) => choose({ principal: target.value.trim() })}
        />
        <Live isLive={isLive} />
      </div>
      <Card>
        <Loaded query={query} lines={12}>
          {({ pages }) => {
            const entries = pages.flatMap((page) => page.history);
            if (entries.length === 0) return <NoChanges isFiltered={Object.keys(filter).length > 0} />;
            return <HistoryList warehouse={warehouse} entries={entries} />;
          }}
        </Loaded>
        <OlderChanges query={query} />
      </Card>
    </div>
  );
}

function NoChanges({ isFiltered }: { isFiltered: boolean }) {
  const warehouse = useWarehouse();
  if (!isFiltered) {
    return <Empty title="Nothing has happened yet">Changes of tables appear here, whoever makes them.</Empty>;
  }
  return (
    <Empty title="No such changes">
      <Link to="/w/$warehouse/history" params={{ warehouse }}>
        All changes
      </Link>
    </Empty>
  );
}

function Choice({
  name,
  value,
  options,
  choose,
}: {
  name: string;
  value: string | undefined;
  options: readonly string[];
  choose: (chosen: string) => void;
}) {
  return (
    <select aria-label={name} value={value ?? ""} onChange={({ target }) => choose(target.value)}>
      <option value="">{name}: any</option>
      {[...new Set([...options, ...(value ? [value] : [])])].map((option) => (
        <option key={option}>{option}</option>
      ))}
    </select>
  );
}
