// The settings that the server runs with: where each came from, and what it means. Secrets never come here.
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { type Setting, settingsQuery } from "../../api/administration.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { Code } from "../../parts/Copy.tsx";
import { Segments, TextField } from "../../parts/fields.tsx";
import { plural } from "../../parts/format.ts";
import { type Column, LongTable } from "../../parts/LongTable.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";

const SHOWN = [
  ["", "All"],
  ["set", "Not at the default"],
] as const;

type Shown = (typeof SHOWN)[number][0];

export function Settings() {
  const warehouse = useWarehouse();
  const query = useQuery(settingsQuery());
  const search = useSearch({ from: "/w/$warehouse/settings" });
  const navigate = useNavigate();
  const show: Shown = search.show === "set" ? "set" : "";
  const find = search.find ?? "";
  const choose = (chosen: { show: Shown; find: string }) =>
    void navigate({
      to: "/w/$warehouse/settings",
      params: { warehouse },
      search: { ...(chosen.find ? { find: chosen.find } : {}), ...(chosen.show ? { show: chosen.show } : {}) },
      replace: true,
    });
  return (
    <div className="body">
      <title>Settings · duckicelake</title>
      <Head
        title="Settings"
        comment="The server reads them when it starts: a change takes effect at its next start. Options of a warehouse take effect at once, and are on the page of the warehouse."
      />
      <Card
        title="All settings"
        aside={<Segments name="Which" value={show} options={SHOWN} choose={(one) => choose({ show: one, find })} />}
      >
        <div className="inside">
          <TextField name="Part of a name or meaning" value={find} change={(text) => choose({ show, find: text })} />
        </div>
        <Loaded query={query} lines={12}>
          {({ settings }) => <Found of={settings.filter((one) => isFound(one, show, find))} />}
        </Loaded>
      </Card>
      <Card title="The same by command">
        <div className="inside stack">
          <p>
            On the server&rsquo;s machine, in its folder and with its environment. The first of these counts: an option,
            a variable, <code>duckicelake.toml</code> in the folder, that in the lake, the default.
          </p>
          <Code text={`duckicelake config${show ? " --changed" : ""}`} what="the command" />
        </div>
      </Card>
    </div>
  );
}

function isFound({ name, variable, meaning, source }: Setting, show: Shown, find: string): boolean {
  if (show === "set" && source === "default") return false;
  return `${name} ${variable} ${meaning}`.toLowerCase().includes(find.trim().toLowerCase());
}

const COLUMNS: readonly Column<Setting>[] = [
  {
    name: "Setting",
    show: ({ name, variable, meaning }) => (
      <div className="stack none wide-text">
        <code title={variable}>{name}</code>
        <span className="quiet small">{meaning}</span>
      </div>
    ),
  },
  { name: "Value", show: ({ value }) => <Value of={value} /> },
  {
    name: "From",
    show: ({ source }) =>
      source === "default" ? <span className="quiet">default</span> : <code className="breaks">{source}</code>,
  },
  { name: "Default", show: ({ default: value }) => <Value of={value} isQuiet /> },
];

function Found({ of }: { of: readonly Setting[] }) {
  return (
    <>
      <p className="inside quiet small" role="status">
        {plural(of.length, "setting")}
      </p>
      {of.length === 0 ? (
        <Empty title="No such settings">All are at their defaults, or no name or meaning has this text.</Empty>
      ) : (
        <LongTable name="Settings" rows={of} columns={COLUMNS} keyOf={({ name }) => name} />
      )}
    </>
  );
}

function Value({ of, isQuiet = false }: { of: Setting["value"]; isQuiet?: boolean }) {
  const text = Array.isArray(of) ? of.join(", ") : String(of ?? "");
  if (text === "") return <span className="quiet">none</span>;
  return <code className={isQuiet ? "breaks quiet" : "breaks"}>{text}</code>;
}
