// The options of a warehouse: those that are set, and those that could be.
import { useState } from "react";
import { FIRST_WAREHOUSE } from "../../api/address.ts";
import { ActDialog } from "../../parts/Act.tsx";
import { writeCommand } from "../../parts/command.ts";
import { TextField } from "../../parts/fields.tsx";
import { formatDuration } from "../../parts/format.ts";

interface Option {
  readonly name: string;
  readonly what: string;
  readonly whenUnset: string;
  readonly isOfAll?: boolean;
}

const OPTIONS: readonly Option[] = [
  { name: "max-tables", what: "The most tables that it may have", whenUnset: "any number", isOfAll: true },
  { name: "max-namespaces", what: "The most namespaces, without main", whenUnset: "any number", isOfAll: true },
  {
    name: "drop-retention-seconds",
    what: "How long what is dropped can be brought back; 0: not at all",
    whenUnset: "not at all",
    isOfAll: true,
  },
  {
    name: "definer-keys",
    what: "on: loads through definer views give keys for all files of the table",
    whenUnset: "off",
    isOfAll: true,
  },
  { name: "max-requests", what: "Requests that a worker answers at a time", whenUnset: "any number" },
  { name: "requests-per-second", what: "Requests that all workers take in a second", whenUnset: "any number" },
  { name: "flush-rows", what: "Rows in Postgres from which on they go to files", whenUnset: "as the settings have it" },
  {
    name: "flush-bytes",
    what: "Bytes in Postgres from which on rows go to files",
    whenUnset: "as the settings have it",
  },
  { name: "flush-age-seconds", what: "Age from which on rows go to files", whenUnset: "as the settings have it" },
];

export function WarehouseOptions({
  name,
  values,
  isFirst,
}: {
  name: string;
  values: Readonly<Record<string, string>>;
  isFirst: boolean;
}) {
  const [changed, setChanged] = useState<string | null>(null);
  const known = OPTIONS.filter(({ isOfAll }) => !isFirst || isOfAll);
  const policies = Object.keys(values)
    .filter((option) => !OPTIONS.some((one) => one.name === option))
    .sort()
    .map((option) => ({ name: option, what: "Policy of tables that have none of their own", whenUnset: "" }));
  return (
    <>
      <div className="scroll cards" tabIndex={0} role="group" aria-label="Options">
        <table>
          <thead>
            <tr>
              <th scope="col">Option</th>
              <th scope="col">Value</th>
              <th scope="col">What it does</th>
              <th scope="col">
                <span className="hidden-text">Change</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {[...known, ...policies].map((option) => (
              <tr key={option.name}>
                <td className="mono">{option.name}</td>
                <td>
                  <Value name={option.name} value={values[option.name]} whenUnset={option.whenUnset} />
                </td>
                <td className="quiet">{option.what}</td>
                <td className="number">
                  <button
                    type="button"
                    className="button small"
                    aria-label={`Change ${option.name}`}
                    onClick={() => setChanged(option.name)}
                  >
                    Change
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {isFirst ? null : (
        <p className="inside">
          <button type="button" className="button" onClick={() => setChanged("")}>
            Set a maintenance policy
          </button>
        </p>
      )}
      {changed === null ? null : (
        <ChangeOption name={name} option={changed} value={values[changed] ?? ""} close={() => setChanged(null)} />
      )}
    </>
  );
}

function Value({ name, value, whenUnset }: { name: string; value: string | undefined; whenUnset: string }) {
  if (value === undefined) return <span className="quiet">{whenUnset}</span>;
  const seconds = name.endsWith("-seconds") ? Number(value) : Number.NaN;
  return (
    <>
      <span className="mono">{value}</span>
      {seconds > 0 ? <span className="quiet"> ({formatDays(seconds)})</span> : null}
    </>
  );
}

const DAY = 86_400;

function formatDays(seconds: number): string {
  return seconds >= DAY && seconds % DAY === 0
    ? `${seconds / DAY} ${seconds === DAY ? "day" : "days"}`
    : formatDuration(seconds);
}

const POLICIES = [
  "maintenance.automatic",
  "maintenance.quiet-hours",
  "maintenance.enabled",
  "maintenance.flush.min-rows",
  "maintenance.flush.max-age",
  "maintenance.compaction.enabled",
  "maintenance.compaction.min-files",
  "maintenance.compaction.delete-ratio",
  "maintenance.sort.order",
  "maintenance.sort.min-share",
  "maintenance.bloom-filters.min-share",
  "maintenance.delete-files.min-excess",
  "maintenance.manifests.min-small",
  "maintenance.statistics.enabled",
  "maintenance.statistics.every",
  "maintenance.expire.enabled",
  "maintenance.orphans.enabled",
  "maintenance.orphans.every",
  "maintenance.orphans.older-than",
  "history.expire.max-snapshot-age-ms",
  "history.expire.min-snapshots-to-keep",
  "history.expire.max-ref-age-ms",
  "write.target-file-size-bytes",
];

function ChangeOption({
  name,
  option: chosen,
  value: old,
  close,
}: {
  name: string;
  option: string;
  value: string;
  close: () => void;
}) {
  const [option, setOption] = useState(chosen);
  const [value, setValue] = useState(old);
  return (
    <ActDialog
      title={chosen ? `Change ${chosen}` : "Set a maintenance policy"}
      verb="Save"
      isReady={option !== "" && value !== old}
      request={{
        method: "POST",
        path: "/management/v1/warehouses/{warehouse}/options",
        warehouse: FIRST_WAREHOUSE,
        values: { warehouse: name },
        body: { options: { [option]: value === "" ? null : value } },
      }}
      command={writeCommand("warehouse options", FIRST_WAREHOUSE, [name, `${option || "OPTION"}=${value}`])}
      places={chosen ? { value: /./ } : { option: /no such|unknown|not an option/i, value: /./ }}
      close={close}
    >
      {chosen ? null : (
        <TextField
          name="Policy"
          value={option}
          change={setOption}
          offered={POLICIES}
          at="option"
          isMono
          isFirst
          isRequired
        />
      )}
      <TextField
        name="Value"
        hint="Empty: the default."
        value={value}
        change={setValue}
        at="value"
        isMono
        isFirst={chosen !== ""}
      />
      <p className="small quiet">
        {name} follows within a second. A limit below what is there refuses new ones; what is there stays.
      </p>
    </ActDialog>
  );
}
