// An act, before it is done: what it will do, what it takes, and how to do the same by command and by HTTP.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, type ReactNode } from "react";
import { quoteShell } from "../api/address.ts";
import { post, remove, urlOf, writeJson } from "../api/client.ts";
import type { paths } from "../api/openapi";
import { Code } from "./Copy.tsx";
import { Dialog } from "./Dialog.tsx";
import { Trouble } from "./Notice.tsx";

export interface Request {
  readonly method: "POST" | "DELETE";
  readonly path: keyof paths;
  readonly warehouse: string;
  readonly values?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: unknown;
}

export function sendRequest({ method, path, warehouse, values, query, body }: Request): Promise<unknown> {
  const asked = {
    warehouse,
    ...(values ? { path: values } : {}),
    ...(query ? { query } : {}),
    ...(body === undefined ? {} : { body }),
  };
  return method === "POST" ? post(path as never, asked as never) : remove(path as never, asked as never);
}

/** The request as curl sends it. */
function writeCurl({ method, path, warehouse, values, query, body }: Request): string {
  const url = quoteShell(urlOf(path, { warehouse, path: values, query }));
  if (body !== undefined) return `curl ${url} --json ${quoteShell(writeJson(body))}`;
  return `curl -X ${method} ${url}`;
}

export function ActDialog({
  title,
  verb,
  isDangerous = false,
  isReady = true,
  request,
  command,
  close,
  done,
  children,
}: {
  title: string;
  verb: string;
  isDangerous?: boolean;
  isReady?: boolean;
  request: Request;
  command: string;
  close: () => void;
  done?: () => void;
  children: ReactNode;
}) {
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: () => sendRequest(request),
    onSuccess: async () => {
      close();
      // Where the page is left, what it showed may be gone: it isn't asked again, and the next page asks for itself.
      await client.invalidateQueries({ queryKey: [request.warehouse], refetchType: done ? "none" : "active" });
      done?.();
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (isReady && !act.isPending) act.mutate();
  };
  return (
    <Dialog label={title} close={close}>
      <form onSubmit={submit}>
        <h2>{title}</h2>
        {children}
        {act.error ? <Trouble error={act.error} /> : null}
        <details>
          <summary>The same by command and by HTTP</summary>
          <div className="stack tight">
            <Code text={command} what="the command" isWrapped />
            <Code text={writeCurl(request)} what="the request" isWrapped />
          </div>
        </details>
        <div className="ends">
          <button type="button" className="button" onClick={close}>
            Leave it
          </button>
          <button className={isDangerous ? "button danger" : "button primary"} disabled={!isReady || act.isPending}>
            {act.isPending ? "Working…" : verb}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
