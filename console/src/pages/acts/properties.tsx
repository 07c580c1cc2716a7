// Comments, properties and protection of tables, views and namespaces.
import { Plus, Trash2 } from "lucide-react";
import { useState } from "react";
import { ActDialog } from "../../parts/Act.tsx";
import { ChangeList, compareRecords } from "../../parts/ChangeList.tsx";
import { AreaField } from "../../parts/fields.tsx";
import { commandOf, historyOf, lastLevel, propertiesRequest, type RelationActProps } from "./relation.ts";
import { FieldTrouble } from "../../parts/refusal.tsx";

export interface DescribedActProps extends RelationActProps {
  readonly properties: Readonly<Record<string, string>>;
  readonly uuid?: string;
}

const PROTECTED = "ducklake.protected";

export function EditComment({ of, properties, uuid, close }: DescribedActProps) {
  const before = properties["comment"] ?? "";
  const [text, setText] = useState(before);
  const request = text
    ? propertiesRequest(of, { comment: text }, [], uuid)
    : propertiesRequest(of, {}, ["comment"], uuid);
  return (
    <ActDialog
      title="Edit the comment"
      verb="Save"
      isReady={text !== before}
      request={request}
      command={commandOf(of, "comment", [text])}
      changed={historyOf(of)}
      close={close}
    >
      <AreaField
        name="Comment"
        hint="All engines show it. An empty one removes it."
        rows={3}
        value={text}
        change={setText}
        isFirst
      />
      <ChangeList
        of={compareRecords(before ? { comment: before } : {}, text ? { comment: text } : {})}
        nothing="It is so already."
      />
    </ActDialog>
  );
}

interface Line {
  readonly key: string;
  readonly name: string;
  readonly value: string;
}

let made = 0;
const newLine = (name = "", value = ""): Line => ({ key: `line${++made}`, name, value });

export function EditProperties({ of, properties, uuid, close }: DescribedActProps) {
  const [base] = useState(properties);
  const [lines, setLines] = useState<readonly Line[]>(() =>
    Object.entries(base)
      .sort(([a], [b]) => a.localeCompare(b))
      .map(([name, value]) => newLine(name, value)),
  );
  const after = Object.fromEntries(lines.map(({ name, value }) => [name.trim(), value]));
  const updates = Object.fromEntries(Object.entries(after).filter(([name, value]) => name && base[name] !== value));
  const removals = Object.keys(base).filter((name) => !(name in after));
  const names = lines.map(({ name }) => name.trim());
  const isTwice = names.some((name, place) => name !== "" && names.indexOf(name) !== place);
  const isReady = !isTwice && !names.includes("") && Object.keys(updates).length + removals.length > 0;
  const commands = [
    ...(removals.length > 0 ? [commandOf(of, "props unset", removals)] : []),
    ...(Object.keys(updates).length > 0
      ? [
          commandOf(
            of,
            "props set",
            Object.entries(updates).map(([name, value]) => `${name}=${value}`),
          ),
        ]
      : []),
  ];
  const set = (key: string, values: Partial<Line>) =>
    setLines(lines.map((line) => (line.key === key ? { ...line, ...values } : line)));
  return (
    <ActDialog
      title={`Properties of ${lastLevel(of)}`}
      verb="Save"
      isWide
      isReady={isReady}
      request={propertiesRequest(of, updates, removals, uuid)}
      command={commands.join(" && ") || commandOf(of, "props set", ["name=value"])}
      places={{ properties: /propert|constraint/i }}
      changed={historyOf(of)}
      close={close}
    >
      <div className="scroll editor-rows" tabIndex={0} role="group" aria-label="Properties to edit">
        <table className="edit">
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Value</th>
              <th scope="col">
                <span className="hidden-text">Remove</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {lines.map((line, place) => (
              <tr key={line.key} className={line.name in base ? "" : "fresh"}>
                <td>
                  <input
                    className="mono"
                    aria-label={`Name ${place + 1}`}
                    value={line.name}
                    spellCheck={false}
                    autoFocus={line.name === ""}
                    onChange={({ target }) => set(line.key, { name: target.value })}
                  />
                </td>
                <td>
                  <input
                    className="mono"
                    aria-label={`Value ${place + 1}`}
                    value={line.value}
                    spellCheck={false}
                    onChange={({ target }) => set(line.key, { value: target.value })}
                  />
                </td>
                <td>
                  <button
                    type="button"
                    className="button only-icon"
                    aria-label={`Remove property ${place + 1}`}
                    title="Remove"
                    onClick={() => setLines(lines.filter(({ key }) => key !== line.key))}
                  >
                    <Trash2 className="icon" aria-hidden />
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div>
        <button type="button" className="button small" onClick={() => setLines([...lines, newLine()])}>
          <Plus className="icon" aria-hidden /> Add a property
        </button>
      </div>
      {isTwice ? <p className="banner">Two lines have the same name.</p> : null}
      <FieldTrouble at="properties" />
      <ChangeList
        of={compareRecords(base, { ...after, ...(names.includes("") ? { "": "" } : {}) }).filter(({ name }) => name)}
      />
    </ActDialog>
  );
}

export function isProtected(properties: Readonly<Record<string, string>>): boolean {
  return properties[PROTECTED] === "true";
}

export function Protect({ of, properties, uuid, close }: DescribedActProps) {
  const [isOn] = useState(() => isProtected(properties));
  const next = isOn ? "false" : "true";
  return (
    <ActDialog
      title={`${isOn ? "Lift the protection of" : "Protect"} ${lastLevel(of)}`}
      verb={isOn ? "Lift it" : "Protect"}
      request={propertiesRequest(of, { [PROTECTED]: next }, [], uuid)}
      command={commandOf(of, "props set", [`${PROTECTED}=${next}`])}
      changed={historyOf(of)}
      close={close}
    >
      <p>
        {isOn
          ? "It can be dropped again, by all clients."
          : "No client can drop it, purge it or put another one in its place, DuckDB included. All else may change."}
      </p>
      <ChangeList of={compareRecords({ [PROTECTED]: properties[PROTECTED] ?? "not set" }, { [PROTECTED]: next })} />
    </ActDialog>
  );
}
