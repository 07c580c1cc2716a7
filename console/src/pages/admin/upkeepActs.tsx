// Asks for upkeep, and says what a lake does by itself.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { apiNamespace } from "../../api/address.ts";
import { type PlannedJob, upkeepPoliciesQuery } from "../../api/operation.ts";
import { ActDialog, type Request } from "../../parts/Act.tsx";
import { Card } from "../../parts/Card.tsx";
import { commandName, writeCommand } from "../../parts/command.ts";
import { CheckField } from "../../parts/fields.tsx";
import { formatBytes, formatCount, formatKind } from "../../parts/format.ts";
import { Loaded } from "../../parts/Notice.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";

interface ActProps {
  readonly warehouse: string;
  readonly close: () => void;
}

/** Puts a job of the plan into the queue; without one all that is due. */
export function RequestUpkeep({ warehouse, job, close }: ActProps & { job?: PlannedJob }) {
  const request: Request = job
    ? {
        method: "POST",
        warehouse,
        path: "/pipeline/v1/namespaces/{namespace}/tables/{table}/upkeep",
        values: { namespace: apiNamespace(job.namespace), table: job.table },
        body: { kinds: [job.kind] },
      }
    : { method: "POST", warehouse, path: "/pipeline/v1/upkeep", body: {} };
  const given = job ? [commandName([...job.namespace, job.table])] : [];
  const name = job ? [...job.namespace, job.table].join(".") : "";
  return (
    <ActDialog
      title={job ? `${formatKind(job.kind)}: ${name}` : "Do what is due"}
      verb="Put it into the queue"
      request={request}
      command={writeCommand("upkeep run", warehouse, given, { "no-wait": true, only: job?.kind })}
      close={close}
    >
      {job ? (
        <>
          <p className="breaks">{job.why}</p>
          {job.source == null ? (
            <p className="banner good">
              {formatCount(job.estimate["files-read"])} files with {formatBytes(job.estimate["bytes-read"])} would be
              read, {formatCount(job.estimate["files-saved"])} files saved.
            </p>
          ) : null}
        </>
      ) : (
        <p>
          All that is due now is put into the queue, also what the lake doesn&rsquo;t do by itself. Expiry and the
          removal of orphans are left out where no policy asks for them.
        </p>
      )}
      <p className="quiet">
        A worker of the server, or <code>duckicelake work</code>, takes it from there. The queue below shows how far it
        is.
      </p>
    </ActDialog>
  );
}

const AUTOMATIC = "maintenance.automatic";
/** What a lake can do without being asked. */
const KINDS = [
  "flush",
  "compact",
  "sort",
  "bloom-filters",
  "rewrite-deletes",
  "pack-manifests",
  "statistics",
  "expire",
  "remove-orphans",
] as const;

const splitKinds = (text: string): readonly string[] => text.split(",").flatMap((kind) => kind.trim() || []);

/** What the lake does by itself: its own policy, or else the server's. */
export function AutomaticUpkeep() {
  const warehouse = useWarehouse();
  const query = useQuery(upkeepPoliciesQuery(warehouse));
  const [isChanging, setChanging] = useState(false);
  return (
    <Card
      title="What the lake does by itself"
      aside={
        <button
          type="button"
          className="button small"
          disabled={query.data === undefined}
          onClick={() => setChanging(true)}
        >
          Change
        </button>
      }
    >
      <Loaded query={query} lines={1}>
        {({ policies, settings }) => {
          const kinds = splitKinds(policies[AUTOMATIC] ?? settings[AUTOMATIC] ?? "none");
          const isOn = kinds.some((kind) => kind !== "none");
          return (
            <div className="inside row">
              {isOn ? (
                kinds.map((kind) => (
                  <span key={kind} className="tag accent">
                    {formatKind(kind)}
                  </span>
                ))
              ) : (
                <span className="quiet">Nothing: upkeep is done when someone asks for it.</span>
              )}
              {isChanging ? (
                <ChangeAutomatic
                  warehouse={warehouse}
                  policies={policies}
                  kinds={kinds}
                  close={() => setChanging(false)}
                />
              ) : null}
            </div>
          );
        }}
      </Loaded>
    </Card>
  );
}

function ChangeAutomatic({
  warehouse,
  policies,
  kinds: before,
  close,
}: ActProps & { policies: Readonly<Record<string, string>>; kinds: readonly string[] }) {
  const [chosen, setChosen] = useState<readonly string[]>(before.filter((kind) => kind !== "none"));
  const value = chosen.join(",") || "none";
  const offered = [...new Set([...KINDS, ...chosen])];
  return (
    <ActDialog
      title="What the lake does by itself"
      verb="Save"
      request={{
        method: "PUT",
        warehouse,
        path: "/pipeline/v1/policies",
        body: { policies: { ...policies, [AUTOMATIC]: value } },
      }}
      command={writeCommand("upkeep policies", warehouse, [], { set: `${AUTOMATIC}=${value}` })}
      close={close}
    >
      <p>Namespaces and tables may say otherwise by a property of the same name. Before: {before.join(", ")}.</p>
      {offered.map((kind) => (
        <CheckField
          key={kind}
          name={formatKind(kind)}
          isOn={chosen.includes(kind)}
          change={(isOn) => setChosen(isOn ? [...chosen, kind] : chosen.filter((one) => one !== kind))}
        />
      ))}
      {chosen.includes("expire") ? (
        <p className="banner">Expired snapshots can&rsquo;t be read any more, nor restored.</p>
      ) : null}
    </ActDialog>
  );
}
