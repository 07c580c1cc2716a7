// A table: what it is at a glance, and a page for each side of it.
import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { type ComponentType, lazy, Suspense, useEffect, useMemo, useRef } from "react";
import { type Identifier, joinIdentifier, splitIdentifier } from "../../api/address.ts";
import type { TableMetadata } from "../../api/iceberg.ts";
import { statisticsQuery, tableQuery } from "../../api/queries.ts";
import { Figure, Head } from "../../parts/Card.tsx";
import { formatBytes, formatCount, formatShort } from "../../parts/format.ts";
import { crumbsOf } from "../../parts/links.tsx";
import { loadPart } from "../../parts/loadPart.ts";
import { Loaded, Waiting } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import type { TablePage } from "../../router.tsx";
import { RelationLinks } from "../RelationLinks.tsx";
import { TableActs } from "./acts.tsx";
import { Freshness } from "./Freshness.tsx";
import { SchemaPage } from "./SchemaPage.tsx";

export interface TablePageProps {
  readonly warehouse: string;
  readonly table: Identifier;
  readonly metadata: TableMetadata;
}

const PAGES: Readonly<Record<TablePage, { readonly name: string; readonly Page: ComponentType<TablePageProps> }>> = {
  schema: { name: "Schema", Page: SchemaPage },
  data: {
    name: "Data",
    Page: lazy(async () => ({ default: (await loadPart(() => import("./DataPage.tsx"))).DataPage })),
  },
  snapshots: {
    name: "Snapshots",
    Page: lazy(async () => ({ default: (await loadPart(() => import("./SnapshotsPage.tsx"))).SnapshotsPage })),
  },
  files: {
    name: "Files",
    Page: lazy(async () => ({ default: (await loadPart(() => import("./FilesPage.tsx"))).FilesPage })),
  },
  changes: {
    name: "Row changes",
    Page: lazy(async () => ({ default: (await loadPart(() => import("./ChangesPage.tsx"))).ChangesPage })),
  },
  loads: {
    name: "Loads",
    Page: lazy(async () => ({ default: (await loadPart(() => import("./LoadsPage.tsx"))).LoadsPage })),
  },
  properties: {
    name: "Properties",
    Page: lazy(async () => ({ default: (await loadPart(() => import("./PropertiesPage.tsx"))).PropertiesPage })),
  },
  history: {
    name: "History",
    Page: lazy(async () => ({ default: (await loadPart(() => import("./HistoryPage.tsx"))).HistoryPage })),
  },
};

export function Table() {
  const { warehouse, table: text } = useParams({ from: "/w/$warehouse/tables/$table" });
  const { page = "schema" } = useSearch({ from: "/w/$warehouse/tables/$table" });
  const table = useMemo(() => splitIdentifier(text), [text]);
  const query = useQuery(tableQuery(warehouse, table));
  const { name, Page } = PAGES[page];
  return (
    <div className="body">
      <title>{`${table.name} · ${name} · duckicelake`}</title>
      <Head
        crumbs={crumbsOf(warehouse, table.namespace)}
        title={table.name}
        comment={query.data?.properties?.["comment"]}
      >
        {query.isError ? null : <RelationLinks warehouse={warehouse} of={table} />}
        {query.data ? <TableActs warehouse={warehouse} table={table} metadata={query.data} /> : null}
      </Head>
      <Loaded query={query}>
        {(metadata) => (
          <>
            <Figures warehouse={warehouse} table={table} metadata={metadata} />
            {isMaterialized(metadata) ? <Freshness warehouse={warehouse} table={table} /> : null}
            <Tabs warehouse={warehouse} table={table} page={page} />
            <Suspense fallback={<Waiting lines={9} />}>
              <Page warehouse={warehouse} table={table} metadata={metadata} />
            </Suspense>
          </>
        )}
      </Loaded>
    </div>
  );
}

/** Whether a refresh wrote the newest snapshot, as Iceberg's draft of materialized views records it. */
function isMaterialized(metadata: TableMetadata): boolean {
  return findCurrent(metadata)?.summary?.["refresh-state"] !== undefined;
}

function findCurrent(metadata: TableMetadata) {
  return metadata.snapshots?.find((one) => String(one["snapshot-id"]) === String(metadata["current-snapshot-id"]));
}

function Figures({ warehouse, table, metadata }: TablePageProps) {
  const { data: statistics } = useQuery(statisticsQuery(warehouse, table));
  const current = findCurrent(metadata);
  const total = (key: string) => Number(current?.summary?.[key] ?? 0);
  const rows = statistics
    ? statistics.records - statistics.deleted + statistics["inlined-rows"]
    : total("total-records");
  const files = statistics?.files ?? total("total-data-files");
  const bytes = statistics?.bytes ?? total("total-files-size");
  return (
    <dl className="figures">
      <Figure name="Rows">
        <span title={formatCount(rows)}>{formatShort(rows)}</span>
      </Figure>
      <Figure name="Data files">{formatShort(files)}</Figure>
      <Figure name="Size">{formatBytes(bytes)}</Figure>
      <Figure name="Snapshots">{formatShort(metadata.snapshotCount)}</Figure>
      <Figure name="Format">Iceberg v{metadata["format-version"]}</Figure>
      <Figure name="Changed">
        <Time at={metadata["last-updated-ms"]} />
      </Figure>
    </dl>
  );
}

function Tabs({ warehouse, table, page }: { warehouse: string; table: Identifier; page: TablePage }) {
  const tabs = useRef<HTMLElement>(null);
  // On a narrow screen the chosen one may be beyond the edge.
  useEffect(() => {
    tabs.current?.querySelector(".active")?.scrollIntoView({ inline: "nearest", block: "nearest" });
  }, [page]);
  return (
    <nav className="tabs" aria-label="About the table" ref={tabs}>
      {Object.entries(PAGES).map(([key, { name }]) => (
        <Link
          key={key}
          to="/w/$warehouse/tables/$table"
          params={{ warehouse, table: joinIdentifier(table) }}
          search={key === "schema" ? {} : { page: key as TablePage }}
          className={key === page ? "active" : ""}
          activeProps={{}}
          aria-current={key === page ? "page" : undefined}
        >
          {name}
        </Link>
      ))}
    </nav>
  );
}
