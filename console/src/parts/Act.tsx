// An act, before it is done: what it will do, what it takes, and how to do the same by command and by HTTP.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useEffect, useRef, useState } from "react";
import type { Identifier } from "../api/address.ts";
import { ApiError, createKey, post, put, remove, writeJson } from "../api/client.ts";
import type { paths } from "../api/openapi";
import { announceChange, renewQueries } from "../api/pages.ts";
import { newestChangesQuery } from "../api/queries.ts";
import { currentToken } from "../api/session.ts";
import { TOKEN, writeCurl } from "./command.ts";
import { Code } from "./Copy.tsx";
import { Dialog } from "./Dialog.tsx";
import { type HistoryEntry, HistoryList } from "./HistoryList.tsx";
import { Trouble } from "./Notice.tsx";
import { leadToRefusal, Refusal } from "./refusal.tsx";

export interface Request {
  readonly method: "POST" | "PUT" | "DELETE";
  readonly path: keyof paths;
  readonly warehouse: string;
  readonly values?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: unknown;
}

/** Sends it. key: whatever is sent again with it takes effect once. */
export function sendRequest({ method, path, warehouse, values, query, body }: Request, key?: string): Promise<unknown> {
  const asked = {
    warehouse,
    ...(values ? { path: values } : {}),
    ...(query ? { query } : {}),
    ...(body === undefined ? {} : { body }),
    ...(key ? { headers: { "Idempotency-Key": key } } : {}),
  };
  if (method === "PUT") return put(path as never, asked as never);
  return method === "POST" ? post(path as never, asked as never) : remove(path as never, asked as never);
}

/** Whose history says who was faster. */
export interface Changed {
  readonly namespace: readonly string[];
  readonly table?: string;
  readonly view?: string;
}

export const ofTable = ({ namespace, name }: Identifier): Changed => ({ namespace, table: name });

interface ActProps {
  readonly title: string;
  readonly verb: string;
  readonly isDangerous?: boolean;
  readonly isReady?: boolean;
  readonly isWide?: boolean;
  readonly request: Request;
  readonly command: string;
  readonly close: () => void;
  /** Leaves the page, so that what it showed isn't asked again. */
  readonly done?: () => void;
  readonly answered?: (answer: unknown) => void;
  /** The warehouse of whose pages the act changes what they show. */
  readonly touches?: string;
  /** The body as the page shows it, where it has what is secret. */
  readonly shown?: unknown;
  /** Names of fields, each with the errors that belong to it. The first that fits has the error below it. */
  readonly places?: Readonly<Record<string, RegExp>>;
  readonly changed?: Changed;
  readonly children: ReactNode;
}

export function ActDialog(act: ActProps) {
  const { title, verb, isDangerous = false, isReady = true, request, close, children } = act;
  const { mutation, submit, isOvertaken, lookAgain, opened } = useAct(act);
  const error: unknown = mutation.error;
  const place = error instanceof ApiError && !isOvertaken ? findPlace(error, act.places ?? {}) : null;
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (place !== null && form.current) leadToRefusal(form.current);
  }, [error, place]);
  return (
    <Dialog label={title} close={close} className={act.isWide ? "wide" : undefined}>
      <form onSubmit={submit} noValidate ref={form}>
        <h2>{title}</h2>
        <Refusal.Provider value={{ error, place }}>{children}</Refusal.Provider>
        {isOvertaken ? (
          <Overtaken warehouse={request.warehouse} changed={act.changed} opened={opened} lookAgain={lookAgain} />
        ) : error && place === null ? (
          <Trouble error={error} />
        ) : null}
        <Same command={act.command} request={"shown" in act ? { ...request, body: act.shown } : request} />
        <div className="ends">
          <span className="needed small quiet">* needed</span>
          <button type="button" className="button" onClick={close}>
            Cancel
          </button>
          <button
            className={isDangerous ? "button danger" : "button primary"}
            disabled={!isReady || mutation.isPending || isOvertaken}
          >
            {mutation.isPending ? "Working…" : verb}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** The act with a key: a second click, or another try after no answer, is the same request and takes effect once. */
function useAct({ request, close, done, answered, touches = request.warehouse, isReady = true }: ActProps) {
  const client = useQueryClient();
  const [opened, setOpened] = useState(() => Date.now());
  const kept = useRef<{ text: string; key: string } | null>(null);
  const isSending = useRef(false);
  const mutation = useMutation({
    mutationFn: () => {
      const text = writeJson(request);
      if (kept.current?.text !== text) kept.current = { text, key: createKey() };
      return sendRequest(request, kept.current.key);
    },
    onSuccess: async (answer) => {
      close();
      announceChange(touches);
      // Where the page is left, what it showed may be gone: it isn't asked again, and the next page asks for itself.
      await renewQueries(client, { queryKey: [touches], refetchType: done ? "none" : "active" });
      done?.();
      answered?.(answer);
    },
    onError: (error) => {
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) kept.current = null;
    },
    onSettled: () => {
      isSending.current = false;
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!isReady || isSending.current) return;
    isSending.current = true;
    mutation.mutate();
  };
  const lookAgain = async () => {
    await renewQueries(client, { queryKey: [touches] });
    setOpened(Date.now());
    mutation.reset();
  };
  const failed: unknown = mutation.error;
  const isOvertaken = failed instanceof ApiError && failed.status === 409 && failed.type === "CommitFailedException";
  return { mutation, submit, isOvertaken, lookAgain, opened };
}

function findPlace(error: ApiError, places: Readonly<Record<string, RegExp>>): string | null {
  if (error.status < 400 || error.status >= 500 || error.status === 401 || error.status === 403) return null;
  return Object.entries(places).find(([, pattern]) => pattern.test(error.message))?.[0] ?? null;
}

const LOOK_MS = 1000;
const MOST_LOOKS = 10;

/** Another writer was faster: who it was, and a way to see what there is now. What was typed stays. */
function Overtaken({
  warehouse,
  changed,
  opened,
  lookAgain,
}: {
  warehouse: string;
  changed: Changed | undefined;
  opened: number;
  lookAgain: () => Promise<void>;
}) {
  const isNewer = ({ timestamp }: HistoryEntry) => Date.parse(timestamp) >= opened;
  const { data } = useQuery({
    ...newestChangesQuery(warehouse, changed ?? { namespace: [] }),
    enabled: !!changed,
    // The history has a change a moment after its commit.
    refetchInterval: ({ state }) => (state.dataUpdateCount > MOST_LOOKS || state.data?.some(isNewer) ? false : LOOK_MS),
  });
  const newer = (data ?? []).filter(isNewer);
  const shown = newer.length > 0 ? newer : (data ?? []).slice(0, 1);
  return (
    <div className="notice trouble" role="alert">
      <strong>Another writer was faster</strong>
      <p>Nothing was changed. What you typed is still here.</p>
      {shown.length > 0 ? <HistoryList warehouse={warehouse} entries={shown} isNameShown={false} /> : null}
      <button type="button" className="button" onClick={() => void lookAgain()}>
        Look at what there is now
      </button>
    </div>
  );
}

function Same({ command, request }: { command: string; request: Request }) {
  return (
    <details>
      <summary>The same by command and by HTTP</summary>
      <div className="stack tight">
        <Code text={command} what="the command" />
        <Code text={writeCurl(request)} what="the request" />
        {currentToken() === null ? null : (
          <p className="quiet small">
            Both take the token of the variable <code>{TOKEN}</code>.
          </p>
        )}
      </div>
    </details>
  );
}

/** What the server says that an act would do, without doing it. */
export function DryRun<T>({ request, children }: { request: Request; children: (answer: T) => ReactNode }) {
  const { data, error, isFetching } = useQuery({
    queryKey: [request.warehouse, "dry run", request.path, request.values, request.query, request.body],
    queryFn: async () => (await sendRequest(request)) as T,
    retry: false,
    staleTime: 0,
  });
  if (error) return <Trouble error={error} />;
  if (data === undefined) return <p className="banner good">{isFetching ? "Asking what it would do…" : ""}</p>;
  return children(data);
}
