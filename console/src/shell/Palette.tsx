// The command palette: pages by their names, tables and views by a part of theirs.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Eye, Plus, Search, Table2 } from "lucide-react";
import { type KeyboardEvent, type ReactNode, useDeferredValue, useEffect, useRef, useState } from "react";
import { type Identifier, joinIdentifier } from "../api/address.ts";
import { callerQuery, findQuery } from "../api/queries.ts";
import { Dialog } from "../parts/Dialog.tsx";
import { ADMINISTRATION, SECTIONS, sectionsFor } from "./sections.ts";

interface Choice {
  readonly key: string;
  readonly icon: ReactNode;
  readonly name: string;
  readonly hint: string;
  readonly go: () => unknown;
}

export function Palette({ warehouse, close }: { warehouse: string; close: () => void }) {
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const choices = useChoices(warehouse, typed);
  const list = useRef<HTMLUListElement>(null);
  const chosen = Math.min(at, choices.length - 1);
  useEffect(() => {
    void list.current?.children[chosen]?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  const choose = (choice: Choice | undefined) => {
    if (!choice) return;
    close();
    choice.go();
  };
  const press = (event: KeyboardEvent) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move !== undefined) setAt((chosen + move + choices.length) % Math.max(choices.length, 1));
    else if (event.key === "Enter") choose(choices[chosen]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog label="Find" className="palette" close={close}>
      <div className="search">
        <Search className="icon" aria-hidden />
        <input
          role="combobox"
          aria-expanded
          aria-controls="palette-list"
          aria-activedescendant={choices[chosen] ? `palette-${chosen}` : undefined}
          aria-label="A page, a table or a view"
          placeholder="A page, a table or a view"
          autoFocus
          spellCheck={false}
          value={typed}
          onChange={({ target }) => {
            setTyped(target.value);
            setAt(0);
          }}
          onKeyDown={press}
        />
        <kbd>Esc</kbd>
      </div>
      <ul id="palette-list" role="listbox" aria-label="Found" ref={list}>
        {choices.map((choice, place) => (
          <li
            key={choice.key}
            id={`palette-${place}`}
            role="option"
            aria-selected={place === chosen}
            onMouseMove={() => setAt(place)}
            onClick={() => choose(choice)}
          >
            {choice.icon}
            <span className="name">{choice.name}</span>
            <span className="hint">{choice.hint}</span>
          </li>
        ))}
      </ul>
      {choices.length === 0 ? <p className="empty">Nothing here is called so.</p> : null}
    </Dialog>
  );
}

function useChoices(warehouse: string, typed: string): readonly Choice[] {
  const navigate = useNavigate();
  const words = useDeferredValue(typed.trim().toLowerCase());
  const { data: found = [] } = useQuery({ ...findQuery(warehouse, words), placeholderData: keepPreviousData });
  const { data: caller } = useQuery(callerQuery(warehouse));
  const sections = sectionsFor([...SECTIONS, ...ADMINISTRATION], caller);
  const pages = sections
    .filter(({ name }) => name.toLowerCase().includes(words))
    .map(({ to, name, Icon }) => ({
      key: to,
      icon: <Icon className="icon" aria-hidden />,
      name,
      hint: "Page",
      go: () => navigate({ to, params: { warehouse } }),
    }));
  const makes = (["namespace", "table", "view"] as const)
    .filter((kind) => `new ${kind} create`.includes(words))
    .map((kind) => ({
      key: `new ${kind}`,
      icon: <Plus className="icon" aria-hidden />,
      name: `New ${kind}`,
      hint: "Act",
      go: () => navigate({ to: "/w/$warehouse/tables", params: { warehouse }, search: { new: kind } }),
    }));
  const open = (kind: "table" | "view", identifier: Identifier) => {
    const id = joinIdentifier(identifier);
    return kind === "table"
      ? navigate({ to: "/w/$warehouse/tables/$table", params: { warehouse, table: id } })
      : navigate({ to: "/w/$warehouse/views/$view", params: { warehouse, view: id } });
  };
  const things = found.map(({ kind, namespace, name }) => ({
    key: `${kind} ${joinIdentifier({ namespace, name })}`,
    icon:
      kind === "table" ? (
        <Table2 className="icon kind-table" aria-hidden />
      ) : (
        <Eye className="icon kind-view" aria-hidden />
      ),
    name: [...namespace, name].join("."),
    hint: kind === "table" ? "Table" : "View",
    go: () => open(kind, { namespace, name }),
  }));
  return words ? [...pages, ...makes, ...things] : [...pages, ...makes, ...things.slice(0, 8)];
}
