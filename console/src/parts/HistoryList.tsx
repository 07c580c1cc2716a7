// Changes of the lake, the newest first.
import { Link } from "@tanstack/react-router";
import { joinIdentifier } from "../api/address.ts";
import type { Answer } from "../api/client.ts";
import { formatKind, formatShort } from "./format.ts";
import { NamespaceLink, TableLink } from "./links.tsx";
import { Time } from "./Time.tsx";

export type HistoryEntry = Answer<"/v1/history", "get">["history"][number];

interface History {
  readonly hasNextPage: boolean;
  readonly isFetchingNextPage: boolean;
  readonly fetchNextPage: () => unknown;
}

/** Asks for the page before the oldest change that is shown, while there is one. */
export function OlderChanges({ query }: { query: History }) {
  if (!query.hasNextPage) return null;
  return (
    <p className="inside">
      <button
        type="button"
        className="button"
        disabled={query.isFetchingNextPage}
        onClick={() => void query.fetchNextPage()}
      >
        Older changes
      </button>
    </p>
  );
}

export function HistoryList({
  warehouse,
  entries,
  isNameShown = true,
}: {
  warehouse: string;
  entries: readonly HistoryEntry[];
  isNameShown?: boolean;
}) {
  return (
    <ul className="changes">
      {entries.map((entry) => (
        <li key={entry.position}>
          <div className="row">
            <span className="what">{formatKind(entry.kind)}</span>
            {isNameShown ? <Thing warehouse={warehouse} entry={entry} /> : null}
            <Metrics metrics={entry.metrics} />
          </div>
          <div className="small quiet row">
            <Time at={entry.timestamp} isFull />
            <span>{[entry.principal, entry.engine ?? entry.source].filter(Boolean).join(" · ")}</span>
            {entry.notes.message ? <span className="message">{entry.notes.message}</span> : null}
          </div>
        </li>
      ))}
    </ul>
  );
}

function Thing({ warehouse, entry: { kind, namespace, name } }: { warehouse: string; entry: HistoryEntry }) {
  const text = [...namespace, ...(name ? [name] : [])].join(".");
  if (kind.startsWith("drop")) return <span className="mono">{text}</span>;
  if (!name) {
    return (
      <NamespaceLink warehouse={warehouse} namespace={namespace}>
        {text}
      </NamespaceLink>
    );
  }
  if (kind.endsWith("view")) {
    return (
      <Link to="/w/$warehouse/views/$view" params={{ warehouse, view: joinIdentifier({ namespace, name }) }}>
        {text}
      </Link>
    );
  }
  return <TableLink warehouse={warehouse} table={{ namespace, name }} />;
}

function Metrics({ metrics }: { metrics: HistoryEntry["metrics"] }) {
  const added = metrics["added-records"] ?? metrics["rows-added"] ?? 0;
  const removed = metrics["deleted-records"] ?? metrics["rows-removed"] ?? 0;
  return (
    <>
      {added > 0 ? <span className="tag good">+{formatShort(added)} rows</span> : null}
      {removed > 0 ? <span className="tag bad">−{formatShort(removed)} rows</span> : null}
    </>
  );
}
