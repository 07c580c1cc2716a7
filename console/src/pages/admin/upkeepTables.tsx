// Tables that upkeep could do something about, the worst first. All tables are counted for it, so only who asks has them.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { allStatisticsQuery, type Statistics } from "../../api/operation.ts";
import { useAllPages } from "../../api/pages.ts";
import { Card } from "../../parts/Card.tsx";
import { formatBytes, formatCount } from "../../parts/format.ts";
import { TableLink } from "../../parts/links.tsx";
import { type Column, LongTable } from "../../parts/LongTable.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";

export function Tables() {
  const warehouse = useWarehouse();
  const { show } = useSearch({ from: "/w/$warehouse/upkeep" });
  const navigate = useNavigate();
  const count = () =>
    void navigate({
      to: "/w/$warehouse/upkeep",
      params: { warehouse },
      search: (last) => ({ ...last, show: "tables" }),
      replace: true,
      resetScroll: false,
    });
  return (
    <Card title="What the plan is decided by">
      {show === "tables" ? (
        <TableList />
      ) : (
        <Empty title="Small files, deletes and rows in Postgres, by table">
          <p>
            <button type="button" className="button" onClick={count}>
              Count them
            </button>
          </p>
        </Empty>
      )}
    </Card>
  );
}

/** Files of a table that upkeep could make fewer, and rows that it could write to files. */
function weigh(table: Statistics): number {
  return table["small-files"] + table["files-with-deletes"] + table["delete-files"] + table["inlined-rows"] / 1000;
}

function TableList() {
  const warehouse = useWarehouse();
  const query = useInfiniteQuery(allStatisticsQuery(warehouse));
  const isWhole = useAllPages(query);
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
          <Empty title={isWhole ? "Nothing waits" : "Nothing so far"}>
            No table that you may read has small files, deletes, or rows in Postgres.
          </Empty>
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
