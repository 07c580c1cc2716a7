// Materialized views: make one of a query, refresh it, say when it refreshes by itself, drop it.
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { apiNamespace, joinName, splitName } from "../../api/address.ts";
import type { Answer } from "../../api/client.ts";
import { ActDialog, type Request } from "../../parts/Act.tsx";
import { ChangeList } from "../../parts/ChangeList.tsx";
import { commandName, writeCommand } from "../../parts/command.ts";
import { CheckField, ChoiceField, NameField, SureField } from "../../parts/fields.tsx";
import { plural } from "../../parts/format.ts";
import type { CreateProps } from "./create.tsx";
import { openRelation } from "./relation.ts";
import { ResultPreview, useSettled } from "./result.tsx";

export type MaterializedView = Answer<"/v1/namespaces/{namespace}/materialized-views/{table}", "get">;

const EVERY = [
  ["", "never"],
  ["900", "every 15 minutes"],
  ["3600", "every hour"],
  ["86400", "every day"],
  ["604800", "every week"],
] as const;
type Every = (typeof EVERY)[number][0];

interface Schedule {
  readonly every: Every | "other";
  readonly seconds: number | null;
  readonly onChange: boolean;
}

function scheduleOf(view?: MaterializedView): Schedule {
  const seconds = view?.["refresh-every"] ?? null;
  const known = EVERY.find(([value]) => value === String(seconds ?? ""));
  return { every: known ? known[0] : "other", seconds, onChange: view?.["refresh-on-change"] ?? false };
}

function bodyOf({ seconds, onChange }: Schedule): object {
  return { ...(seconds === null ? {} : { "refresh-every": seconds }), "refresh-on-change": onChange };
}

/** When it is refreshed, in words. */
export function describeSchedule({ seconds, onChange }: Pick<Schedule, "seconds" | "onChange">): string {
  const known = EVERY.find(([value]) => value !== "" && value === String(seconds));
  const every = seconds === null ? [] : [known ? known[1] : `every ${plural(seconds, "second")}`];
  const all = [...every, ...(onChange ? ["when a source has changed"] : [])];
  return all.length > 0 ? all.join(" and ") : "on request alone";
}

function ScheduleFields({ schedule, change }: { schedule: Schedule; change: (schedule: Schedule) => void }) {
  const { every, seconds, onChange } = schedule;
  const options: readonly (readonly [Every | "other", string])[] =
    every === "other" ? [...EVERY, ["other", `every ${plural(seconds ?? 0, "second")}`]] : EVERY;
  return (
    <div className="stack">
      <ChoiceField
        name="Refresh by the clock"
        value={every}
        options={options}
        change={(chosen) =>
          change({
            ...schedule,
            every: chosen,
            seconds: chosen === "" ? null : chosen === "other" ? seconds : Number(chosen),
          })
        }
      />
      <CheckField
        name="Refresh when a source has changed"
        hint="Changes within five seconds are one refresh."
        isOn={onChange}
        change={(isOn) => change({ ...schedule, onChange: isOn })}
      />
    </div>
  );
}

export function CreateMaterializedView({ warehouse, inside, close, sql }: CreateProps & { sql: string }) {
  const navigate = useNavigate();
  const [text, setText] = useState(inside.length > 0 ? `${joinName(inside)}.` : "");
  const [schedule, setSchedule] = useState(scheduleOf());
  const levels = splitName(text.trim());
  const isReady = levels.length > 1 && levels.every((level) => level !== "");
  const asked = useSettled(isReady ? text.trim() : "");
  const every = schedule.seconds === null ? undefined : `${schedule.seconds}s`;
  return (
    <ActDialog
      title="New materialized view"
      verb="Create"
      isWide
      isReady={isReady}
      request={{
        method: "POST",
        path: "/v1/namespaces/{namespace}/materialized-views",
        warehouse,
        values: { namespace: apiNamespace(levels.slice(0, -1)) },
        body: { name: levels.at(-1) ?? "", query: sql, "default-namespace": ["main"], ...bodyOf(schedule) },
      }}
      command={writeCommand("materialized-view create", warehouse, [commandName(levels), sql], {
        namespace: "main",
        every,
        "on-change": schedule.onChange,
      })}
      places={{ name: /exist|namespace|name/i }}
      close={close}
      done={() => openRelation(navigate, { warehouse, kind: "table", levels })}
    >
      <p>A table that refreshes alone write, and all clients read. It reads its sources with your rights.</p>
      <NameField value={text} change={setText} />
      <ScheduleFields schedule={schedule} change={setSchedule} />
      {asked ? <ResultPreview warehouse={warehouse} name={asked} sql={sql} what="materialized view" /> : null}
    </ActDialog>
  );
}

export interface ViewActProps {
  readonly warehouse: string;
  readonly view: MaterializedView;
  readonly close: () => void;
}

function requestTo({ warehouse, view }: ViewActProps, method: Request["method"], below = "", body?: object): Request {
  return {
    method,
    path: `/v1/namespaces/{namespace}/materialized-views/{table}${below}` as Request["path"],
    warehouse,
    values: { namespace: apiNamespace(view.namespace), table: view.name },
    ...(body === undefined ? {} : { body }),
  };
}

function commandTo({ warehouse, view }: ViewActProps, verb: string, options = {}): string {
  return writeCommand(`materialized-view ${verb}`, warehouse, [commandName([...view.namespace, view.name])], options);
}

export function RefreshView(act: ViewActProps) {
  const [isWhole, setWhole] = useState(false);
  return (
    <ActDialog
      title={`Refresh ${act.view.name}`}
      verb="Refresh"
      request={requestTo(act, "POST", "/refresh", { whole: isWhole })}
      command={commandTo(act, "refresh", { whole: isWhole })}
      changed={{ namespace: act.view.namespace, table: act.view.name }}
      close={act.close}
    >
      <p>
        The query runs with the rights of {act.view.definer}, over all sources at the newest snapshot. Where rows were
        only appended, and the query allows it, it reads those alone. If it fails, the contents stay as they are.
      </p>
      <CheckField name="Compute all of it" hint="Whatever has changed." isOn={isWhole} change={setWhole} />
    </ActDialog>
  );
}

export function ScheduleView(act: ViewActProps) {
  const [before] = useState(() => scheduleOf(act.view));
  const [schedule, setSchedule] = useState(before);
  const [is, was] = [schedule, before].map(describeSchedule);
  return (
    <ActDialog
      title={`When ${act.view.name} is refreshed`}
      verb="Save"
      isReady={is !== was}
      request={requestTo(act, "POST", "", bodyOf(schedule))}
      command={commandTo(act, "schedule", {
        every: schedule.seconds === null ? undefined : `${schedule.seconds}s`,
        "on-change": schedule.onChange,
      })}
      close={act.close}
    >
      <ScheduleFields schedule={schedule} change={setSchedule} />
      <ChangeList of={is === was ? [] : [{ name: "refreshed", before: was, after: is }]} />
    </ActDialog>
  );
}

/** Stops the refreshes that come by themselves; the contents stay, and a refresh on request is still possible. */
export function PauseView(act: ViewActProps) {
  const was = describeSchedule(scheduleOf(act.view));
  return (
    <ActDialog
      title={`Pause ${act.view.name}`}
      verb="Pause"
      request={requestTo(act, "POST", "", { "refresh-on-change": false })}
      command={commandTo(act, "schedule")}
      close={act.close}
    >
      <p>It is no longer refreshed by itself. Its rows stay as they are, and Refresh brings it up to date.</p>
      <ChangeList of={[{ name: "refreshed", before: was, after: "on request alone" }]} />
    </ActDialog>
  );
}

export function DropMaterializedView(act: ViewActProps) {
  const navigate = useNavigate();
  const [typed, setTyped] = useState("");
  const { warehouse, view } = act;
  return (
    <ActDialog
      title={`Drop ${view.name}`}
      verb="Drop"
      isDangerous
      isReady={typed === view.name}
      request={requestTo(act, "DELETE")}
      command={commandTo(act, "drop")}
      changed={{ namespace: view.namespace, table: view.name }}
      close={act.close}
      done={() => void navigate({ to: "/w/$warehouse/dropped", params: { warehouse } })}
    >
      <p>
        Clients find the table no longer, and refreshes end. Both can be brought back as long as the lake keeps what was
        dropped: 7 days, if nothing else is set.
      </p>
      <SureField word={view.name} value={typed} change={setTyped} />
    </ActDialog>
  );
}
