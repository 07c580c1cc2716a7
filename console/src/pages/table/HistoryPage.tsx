import { useInfiniteQuery } from "@tanstack/react-query";
import { historyQuery } from "../../api/queries.ts";
import { Card } from "../../parts/Card.tsx";
import { HistoryList, OlderChanges } from "../../parts/HistoryList.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { Live, useLiveChanges } from "../../parts/live.tsx";
import type { TablePageProps } from "./Table.tsx";

export function HistoryPage({ warehouse, table }: TablePageProps) {
  const asked = { of: { namespace: table.namespace, table: table.name }, filter: {} };
  const query = useInfiniteQuery(historyQuery(warehouse, asked));
  const isLive = useLiveChanges(warehouse, asked);
  return (
    <Card title="Who changed what, and when" aside={<Live isLive={isLive} />}>
      <Loaded query={query}>
        {({ pages }) => {
          const entries = pages.flatMap((page) => page.history);
          if (entries.length === 0) return <Empty title="The history of this table was pruned" />;
          return (
            <>
              <HistoryList warehouse={warehouse} entries={entries} isNameShown={false} />
              <OlderChanges query={query} />
            </>
          );
        }}
      </Loaded>
    </Card>
  );
}
