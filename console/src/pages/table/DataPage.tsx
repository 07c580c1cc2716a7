// The first rows of a table, as it is now or was at a branch, a tag or a snapshot.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { joinIdentifier, quoteSql } from "../../api/address.ts";
import { runQuery } from "../../api/rows.ts";
import { Card } from "../../parts/Card.tsx";
import { formatCount, formatDuration, plural } from "../../parts/format.ts";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { ResultGrid } from "../../parts/ResultGrid.tsx";
import type { TablePageProps } from "./Table.tsx";

const PREVIEW_ROWS = 500;

export function DataPage({ warehouse, table, metadata }: TablePageProps) {
  const { to: at } = useSearch({ from: "/w/$warehouse/tables/$table" });
  const navigate = useNavigate();
  const name = quoteSql([...table.namespace, table.name]);
  const sql = at ? `FROM ${name} AT (VERSION => '${at.replaceAll("'", "''")}')` : `FROM ${name}`;
  const query = useQuery({
    queryKey: [warehouse, "rows", sql],
    queryFn: ({ signal }) => runQuery(warehouse, { sql, limit: PREVIEW_ROWS, signal }),
    placeholderData: keepPreviousData,
    retry: false,
  });
  const references = Object.entries(metadata.refs ?? {}).filter(([name]) => name !== "main");
  const choose = (chosen: string) =>
    void navigate({
      to: "/w/$warehouse/tables/$table",
      params: { warehouse, table: joinIdentifier(table) },
      search: chosen ? { page: "data", to: chosen } : { page: "data" },
    });
  return (
    <Card
      title="Rows"
      aside={
        <>
          <span className="quiet small" role="status">
            {query.data
              ? `${query.data.rows === PREVIEW_ROWS ? `the first ${formatCount(PREVIEW_ROWS)} rows` : plural(query.data.rows, "row")} in ${formatDuration(query.data.seconds)}`
              : ""}
          </span>
          {references.length > 0 ? (
            <label className="row tight">
              <span className="quiet small">As of</span>
              <select value={at ?? ""} onChange={({ target }) => choose(target.value)}>
                <option value="">now</option>
                {references.map(([reference, { type }]) => (
                  <option key={reference} value={reference}>
                    {type} {reference}
                  </option>
                ))}
              </select>
            </label>
          ) : null}
        </>
      }
    >
      <Loaded query={query} lines={10}>
        {(result) =>
          result.rows === 0 ? (
            <Empty title="No rows">{at ? "There were none then." : "The table has none yet."}</Empty>
          ) : (
            <ResultGrid result={result} className="preview" />
          )
        }
      </Loaded>
    </Card>
  );
}
