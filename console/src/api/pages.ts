// Lists that come page by page. Of a long one, only the first page is asked again; the others come anew as it is scrolled.
import type { InfiniteData, Query, QueryClient, QueryFilters } from "@tanstack/react-query";
import { useEffect } from "react";
import { serverUrl } from "./address.ts";

type Pages = InfiniteData<unknown>;

function pagesOf(query: Query): Pages | null {
  const data = query.state.data as Partial<Pages> | undefined;
  return Array.isArray(data?.pages) && Array.isArray(data.pageParams) ? (data as Pages) : null;
}

/** Whether a query has loaded several pages, all of which would be asked again, one after another. */
export function isLong(query: Query): boolean {
  return (pagesOf(query)?.pages.length ?? 0) > 1;
}

function cut(client: QueryClient, query: Query): void {
  const long = isLong(query) ? pagesOf(query) : null;
  if (!long) return;
  const first = { pages: long.pages.slice(0, 1), pageParams: long.pageParams.slice(0, 1) };
  client.setQueryData(query.queryKey, first, { updatedAt: query.state.dataUpdatedAt });
}

/** Ask again what has changed: of lists, the first page. */
export function renewQueries(client: QueryClient, filters: QueryFilters & { refetchType?: "none" | "active" }) {
  for (const query of client.getQueryCache().findAll(filters)) cut(client, query);
  return client.invalidateQueries(filters);
}

const tabs = new BroadcastChannel(`duckicelake changes ${serverUrl}`);

/** Let other tabs ask again what an act has changed. warehouse: of whose pages. */
export function announceChange(warehouse: string): void {
  tabs.postMessage(warehouse);
}

export function followOtherTabs(client: QueryClient): void {
  tabs.onmessage = ({ data }: MessageEvent<string>) => void renewQueries(client, { queryKey: [data] });
}

/** Forget the further pages of lists that aren't seen any more. */
export function forgetUnseenPages(client: QueryClient): void {
  client.getQueryCache().subscribe(({ type, query }) => {
    if (type === "observerRemoved" && query.getObserversCount() === 0) cut(client, query);
  });
}

/** A list, the newest first, with what has come since before it; from anew where more has come than was asked for. */
export function putBefore<P, T>(
  known: InfiniteData<P>,
  first: P,
  entries: (page: P) => readonly T[],
  build: (page: P, entries: readonly T[]) => P,
  idOf: (entry: T) => unknown,
): InfiniteData<P> {
  const [shown, ...older] = known.pages;
  const last = shown === undefined ? undefined : entries(shown)[0];
  const place = last === undefined ? -1 : entries(first).findIndex((one) => idOf(one) === idOf(last));
  if (shown === undefined || place < 0) return { pages: [first], pageParams: known.pageParams.slice(0, 1) };
  if (place === 0) return known;
  return { ...known, pages: [build(shown, [...entries(first).slice(0, place), ...entries(shown)]), ...older] };
}

interface FurtherPages {
  readonly hasNextPage: boolean;
  readonly isFetchingNextPage: boolean;
  readonly isFetchNextPageError: boolean;
  readonly fetchNextPage: () => unknown;
  readonly data: unknown;
}

/** Ask for all pages, one after the other, where the whole is sorted or counted. Returns whether they are all here. */
export function useAllPages(query: FurtherPages): boolean {
  const { hasNextPage, isFetchingNextPage, isFetchNextPageError, fetchNextPage, data } = query;
  useEffect(() => {
    if (hasNextPage && !isFetchingNextPage && !isFetchNextPageError) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, isFetchNextPageError, fetchNextPage]);
  return data !== undefined && !hasNextPage;
}
