// What is shown while there is nothing to show: it comes, it went wrong, or it isn't there.
import type { ReactNode } from "react";
import { ApiError } from "../api/client.ts";
import { WayOn } from "./WayOn.tsx";

export function Waiting({ lines = 6 }: { lines?: number }) {
  return (
    <div className="waiting-lines" role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, line) => (
        <div key={line} className="waiting" />
      ))}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="notice">
      <strong>{title}</strong>
      {children ? <div>{children}</div> : null}
    </div>
  );
}

export function Trouble({ error, retry, children }: { error: unknown; retry?: () => void; children?: ReactNode }) {
  const isApi = error instanceof ApiError;
  return (
    <div className="notice trouble" role="alert">
      <strong>{titleOf(error)}</strong>
      <p>{error instanceof Error ? error.message : String(error)}</p>
      {isApi && error.requestId && error.status >= 500 ? (
        <p className="small">
          Request <code>{error.requestId}</code>: the server&rsquo;s log has more under this id.
        </p>
      ) : null}
      {children}
      {retry ? (
        <button type="button" className="button" onClick={retry}>
          Try again
        </button>
      ) : null}
    </div>
  );
}

/** Why a page can't show what was asked, and where to go from there. */
export function Failed({ error, retry }: { error: unknown; retry: () => void }) {
  return (
    <Trouble error={error} retry={retry}>
      {error instanceof ApiError && error.status === 404 ? <WayOn error={error} /> : null}
    </Trouble>
  );
}

/** What kind of trouble it is, in few words. */
export function titleOf(error: unknown): string {
  if (!(error instanceof ApiError)) return "Something went wrong in this page";
  if (error.status === 0) return "No answer";
  if (error.status < 300) return "Another answer than expected";
  if (error.status === 401) return "Signed out";
  if (error.status === 403) return "Not allowed";
  if (error.status === 404) return "Not found";
  if (error.status === 429) return "Too many requests";
  return error.status >= 500 ? "The server failed" : "The server refused";
}

interface Answered<T> {
  readonly data: T | undefined;
  readonly error: unknown;
  readonly refetch: () => unknown;
  /** Of lists that come page by page. */
  readonly isFetchNextPageError?: boolean;
  readonly fetchNextPage?: () => unknown;
}

/** Shows what was asked once it is there, and until then why not; of a list also why the rest isn't. */
export function Loaded<T>({
  query,
  lines,
  children,
}: {
  query: Answered<T>;
  lines?: number;
  children: (data: T) => ReactNode;
}) {
  if (query.data !== undefined) {
    return (
      <>
        {children(query.data)}
        {query.isFetchNextPageError ? <Trouble error={query.error} retry={() => void query.fetchNextPage?.()} /> : null}
      </>
    );
  }
  if (query.error) return <Failed error={query.error} retry={() => void query.refetch()} />;
  return <Waiting {...(lines === undefined ? {} : { lines })} />;
}
