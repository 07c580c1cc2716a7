// New names and the end of tables, views and namespaces.
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { apiNamespace, joinName, splitName } from "../../api/address.ts";
import { ActDialog, type Request } from "../../parts/Act.tsx";
import { ChangeList } from "../../parts/ChangeList.tsx";
import { commandName } from "../../parts/command.ts";
import { CheckField, NameField, SureField } from "../../parts/fields.tsx";
import {
  commandOf,
  historyOf,
  lastLevel,
  openRelation,
  type Relation,
  type RelationActProps,
  requestOf,
} from "./relation.ts";

const SAYS: Readonly<Record<Relation["kind"], string>> = {
  table:
    "No file moves. The table keeps its id, history, branches and grants. Who reads it by its old name finds nothing.",
  view: "The view keeps its SQL, versions and grants. Who reads it by its old name finds nothing.",
  namespace:
    "All namespaces, tables and views in it move along, in one step; no file does. Views keep their text: those that name tables by the old name must be made again.",
};

function renameRequest(of: Relation, levels: readonly string[]): Request {
  const { warehouse, kind } = of;
  if (kind === "namespace") {
    return {
      method: "POST",
      path: "/v1/namespaces/{namespace}/rename",
      warehouse,
      values: { namespace: apiNamespace(of.levels) },
      body: { destination: levels },
    };
  }
  const end = (of: readonly string[]) => ({ namespace: of.slice(0, -1), name: of.at(-1) ?? "" });
  return {
    method: "POST",
    path: kind === "table" ? "/v1/tables/rename" : "/v1/views/rename",
    warehouse,
    body: { source: end(of.levels), destination: end(levels) },
  };
}

interface Renamed {
  readonly "stale-views"?: readonly { readonly namespace: readonly string[]; readonly name: string }[];
}

/** stale: called with the views whose text names tables by the old name of a namespace. */
export function Rename({
  of,
  close,
  stale,
}: RelationActProps & { stale?: (views: readonly (readonly string[])[]) => void }) {
  const navigate = useNavigate();
  const [text, setText] = useState(joinName(of.levels));
  const levels = splitName(text.trim());
  const least = of.kind === "namespace" ? 1 : 2;
  const isNew = joinName(levels) !== joinName(of.levels);
  const isReady = levels.length >= least && levels.every((level) => level !== "") && isNew;
  return (
    <ActDialog
      title={`Rename the ${of.kind}`}
      verb="Rename"
      isReady={isReady}
      request={renameRequest(of, levels)}
      command={commandOf(of, `rename ${of.kind}`, [commandName(levels)])}
      places={{ name: /exist|name|namespace|destination/i }}
      changed={historyOf(of)}
      close={close}
      done={() => openRelation(navigate, { ...of, levels })}
      answered={(answer) => {
        const found = (answer as Renamed | undefined)?.["stale-views"] ?? [];
        if (found.length > 0) stale?.(found.map(({ namespace, name }) => [...namespace, name]));
      }}
    >
      <p>{SAYS[of.kind]}</p>
      <NameField
        name={of.kind === "namespace" ? "New name, in full" : "New name, with its namespace"}
        value={text}
        change={setText}
      />
      <ChangeList of={isReady ? [{ name: of.kind, before: of.levels.join("."), after: levels.join(".") }] : []} />
    </ActDialog>
  );
}

export function Drop({ of, close }: RelationActProps) {
  const navigate = useNavigate();
  const [typed, setTyped] = useState("");
  const [isPurge, setPurge] = useState(false);
  const name = lastLevel(of);
  const request = requestOf(of, "DELETE");
  return (
    <ActDialog
      title={`Drop ${name}`}
      verb="Drop"
      isDangerous
      isReady={typed === name}
      request={isPurge ? { ...request, query: { purgeRequested: "true" } } : request}
      command={commandOf(of, `drop ${of.kind}`, [], { purge: isPurge })}
      changed={historyOf(of)}
      close={close}
      done={() =>
        of.kind === "namespace"
          ? openRelation(navigate, { ...of, levels: of.levels.slice(0, -1) })
          : void navigate({ to: "/w/$warehouse/dropped", params: { warehouse: of.warehouse } })
      }
    >
      <p>
        Clients find the {of.kind} no longer. It can be brought back as long as the lake keeps what was dropped: 7 days,
        if nothing else is set.
        {of.kind === "namespace" ? " Only an empty one is dropped." : ""}
      </p>
      {of.kind === "table" ? (
        <CheckField
          name="Purge"
          hint={
            isPurge
              ? "Its files are deleted when that time is over."
              : "Its files stay until cleanup finds that nothing needs them."
          }
          isOn={isPurge}
          change={setPurge}
        />
      ) : null}
      <SureField word={name} value={typed} change={setTyped} />
    </ActDialog>
  );
}
