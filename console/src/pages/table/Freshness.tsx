// How fresh a materialized view is, and what can be done to it.
import { useQuery } from "@tanstack/react-query";
import { type ComponentType, useState } from "react";
import type { Identifier } from "../../api/address.ts";
import { materializedViewQuery } from "../../api/queries.ts";
import { Facts } from "../../parts/Facts.tsx";
import { formatDuration, plural } from "../../parts/format.ts";
import { Menu } from "../../parts/Menu.tsx";
import { Time } from "../../parts/Time.tsx";
import {
  describeSchedule,
  DropMaterializedView,
  PauseView,
  RefreshView,
  ScheduleView,
  type ViewActProps,
} from "../acts/materializedView.tsx";

const ACTS: Readonly<Record<string, ComponentType<ViewActProps>>> = {
  "Refresh now": RefreshView,
  "Set the schedule": ScheduleView,
  "Pause refreshes": PauseView,
  "Drop the view": DropMaterializedView,
};

/** Nothing for a clone of one, which is a plain table. */
export function Freshness({ warehouse, table }: { warehouse: string; table: Identifier }) {
  const { data: view } = useQuery({ ...materializedViewQuery(warehouse, table), retry: false });
  const [open, setOpen] = useState<string | null>(null);
  if (view === undefined) return null;
  const schedule = { seconds: view["refresh-every"] ?? null, onChange: view["refresh-on-change"] };
  const isPaused = schedule.seconds === null && !schedule.onChange;
  const Act = open === null ? undefined : ACTS[open];
  const sources = view.sources.map((source) => {
    const snapshot = source["snapshot-id"];
    return snapshot == null ? source.name : `${source.name} at snapshot ${snapshot}`;
  });
  return (
    <>
      <section className="notice" aria-label="Materialized view">
        <div className="row">
          <p className="grow">
            <span className="tag accent">materialized view</span> Fresh as of <Time at={view["fresh-as-of"]} />:{" "}
            {sources.join(", ")}. The last refresh was {view.mode}, as {view.reason}.
          </p>
          <Menu
            name="Refresh"
            items={Object.keys(ACTS)
              .filter((name) => name !== "Pause refreshes" || !isPaused)
              .map((name) => ({ name, isDangerous: name.startsWith("Drop"), choose: () => setOpen(name) }))}
          />
        </div>
        {view.error == null ? null : <p role="alert">The refresh after that failed: {view.error}</p>}
        <Facts
          of={[
            ["Refreshed", describeSchedule(schedule)],
            ["Last refresh", `${plural(view["rows-written"], "row")} written in ${formatDuration(view.seconds)}`],
            ["Reads with the rights of", view.definer],
          ]}
        />
        <pre>{view.query}</pre>
      </section>
      {Act ? <Act warehouse={warehouse} view={view} close={() => setOpen(null)} /> : null}
    </>
  );
}
