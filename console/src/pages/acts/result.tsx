// A table of the result of a query, and what the server says that it would be.
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { apiNamespace, joinName, splitName } from "../../api/address.ts";
import type { Answer } from "../../api/client.ts";
import { ActDialog, DryRun, type Request } from "../../parts/Act.tsx";
import { ChangeList } from "../../parts/ChangeList.tsx";
import { commandName, writeCommand } from "../../parts/command.ts";
import { NameField, TextField } from "../../parts/fields.tsx";
import type { CreateProps } from "./create.tsx";
import { openRelation } from "./relation.ts";

type SavedResult = Answer<"/v1/namespaces/{namespace}/query-results", "post">;

const SETTLED_MS = 600;

/** What was typed, once nothing has been typed for a moment: a dry run takes the server half a second. */
export function useSettled(text: string): string {
  const [settled, setSettled] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), SETTLED_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}

function requestFor(warehouse: string, name: string, sql: string, more: object): Request {
  const levels = splitName(name);
  return {
    method: "POST",
    path: "/v1/namespaces/{namespace}/query-results",
    warehouse,
    values: { namespace: apiNamespace(levels.slice(0, -1)) },
    body: { name: levels.at(-1) ?? "", sql, "default-namespace": ["main"], ...more },
  };
}

/** The columns and sources that a table of a query would have. */
export function ResultPreview({
  warehouse,
  name,
  sql,
  what,
}: {
  warehouse: string;
  name: string;
  sql: string;
  what: string;
}) {
  return (
    <DryRun<SavedResult> request={requestFor(warehouse, name, sql, { "dry-run": true })}>
      {({ columns, sources, "ducklake-snapshot-id": snapshot }) => (
        <>
          <ChangeList
            of={[{ name, after: `a ${what}: ${columns.map((one) => `${one.name} ${one.type}`).join(", ")}` }]}
          />
          <p className="quiet small">
            {sources.length > 0 ? `It reads ${sources.join(", ")}` : "It reads no table"}, now at the lake&rsquo;s
            snapshot {snapshot}.
          </p>
        </>
      )}
    </DryRun>
  );
}

export function SaveResult({ warehouse, inside, close, sql }: CreateProps & { sql: string }) {
  const navigate = useNavigate();
  const [text, setText] = useState(inside.length > 0 ? `${joinName(inside)}.` : "");
  const [comment, setComment] = useState("");
  const levels = splitName(text.trim());
  const isReady = levels.length > 1 && levels.every((level) => level !== "");
  const asked = useSettled(isReady ? text.trim() : "");
  return (
    <ActDialog
      title="Save the result as a table"
      verb="Save"
      isWide
      isReady={isReady}
      request={requestFor(warehouse, text.trim(), sql, comment ? { properties: { comment } } : {})}
      command={writeCommand("sql", warehouse, [sql], { namespace: "main", "save-as": commandName(levels) })}
      places={{ name: /exist|namespace|name/i }}
      close={close}
      done={() => openRelation(navigate, { warehouse, kind: "table", levels })}
    >
      <p>
        The query runs again, without the limit of rows of this page, and all of its result becomes a table that every
        client reads. Who may read the table sees what you see now.
      </p>
      <div className="row">
        <NameField value={text} change={setText} />
        <TextField name="Comment" value={comment} change={setComment} />
      </div>
      {asked ? <ResultPreview warehouse={warehouse} name={asked} sql={sql} what="table" /> : null}
    </ActDialog>
  );
}
