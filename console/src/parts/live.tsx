// The change feed, asked again and again: what lists changes is renewed when there are some.
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { ApiError, get } from "../api/client.ts";
import { renewQueries } from "../api/pages.ts";
import { type HistoryAsked, renewHistory } from "../api/queries.ts";

const PAUSE_MS = 4_000;
const LONGER_PAUSE_MS = 20_000;
const MOST_EVENTS = 1000;
/** What of a warehouse is asked again when something in it has changed. */
const CHANGING: ReadonlySet<unknown> = new Set(["table", "snapshots", "statistics", "files"]);

/** Follow the changes of a warehouse while the page is seen, and show them in a list of them. Whether the feed answers. */
export function useLiveChanges(warehouse: string, list: HistoryAsked): boolean {
  const client = useQueryClient();
  const [isLive, setLive] = useState(false);
  const shown = useRef(list);
  shown.current = list;
  useEffect(() => {
    const stop = new AbortController();
    const renew = async () => {
      await renewHistory(client, warehouse, shown.current, stop.signal);
      await renewQueries(client, { predicate: ({ queryKey: [of, what] }) => of === warehouse && CHANGING.has(what) });
    };
    void follow(warehouse, stop.signal, renew, setLive);
    return () => stop.abort();
  }, [warehouse, client]);
  return isLive;
}

async function follow(
  warehouse: string,
  signal: AbortSignal,
  renew: () => Promise<unknown>,
  setLive: (isLive: boolean) => void,
): Promise<void> {
  let from = "newest";
  while (!signal.aborted) {
    let pause = PAUSE_MS;
    try {
      const page = document.hidden
        ? null
        : await get("/v1/events", { warehouse, query: { from, limit: MOST_EVENTS }, signal });
      if (page) {
        if (page.events.length > 0) await renew();
        from = page["continuation-token"];
        setLive(true);
      }
    } catch (error) {
      if (signal.aborted) return;
      setLive(false);
      pause = LONGER_PAUSE_MS;
      // A position that was pruned, or is of a lake before it was restored: all is asked anew.
      if (error instanceof ApiError && [400, 410].includes(error.status)) from = "newest";
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

/** Whether what is shown follows the changes by itself. */
export function Live({ isLive }: { isLive: boolean }) {
  return (
    <span className={isLive ? "tag good" : "tag"} role="status">
      {isLive ? "Live" : "Not live"}
    </span>
  );
}
