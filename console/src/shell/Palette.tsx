// The command palette: pages by their names, tables and views by a part of theirs.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Eye, Folder, Plus, Search, Table2 } from "lucide-react";
import { type KeyboardEvent, type ReactNode, useDeferredValue, useEffect, useRef, useState } from "react";
import { joinIdentifier, joinName } from "../api/address.ts";
import { callerQuery, findQuery, type FoundObject } from "../api/queries.ts";
import { Dialog } from "../parts/Dialog.tsx";
import { ADMINISTRATION, SECTIONS, sectionsFor } from "./sections.ts";

const LONGEST_HINT = 40;

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
  const [isEntered, setEntered] = useState(false);
  const { choices, current } = useChoices(warehouse, typed);
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
  useEffect(() => {
    if (!isEntered || Math.max(chosen, 0) >= current) return;
    setEntered(false);
    choose(choices[chosen]);
  });
  const press = (event: KeyboardEvent) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move !== undefined) setAt((chosen + move + choices.length) % Math.max(choices.length, 1));
    else if (event.key === "Enter") setEntered(true);
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
          aria-label="A page, a table, a column, a comment"
          placeholder="A page, a table, a column, a comment"
          autoFocus
          spellCheck={false}
          value={typed}
          onChange={({ target }) => {
            setTyped(target.value);
            setAt(0);
            setEntered(false);
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

/** What is found, and how many of them are of what is typed now: things of an earlier word stay until the answer comes. */
function useChoices(warehouse: string, typed: string): { choices: readonly Choice[]; current: number } {
  const navigate = useNavigate();
  const words = typed.trim().toLowerCase();
  const asked = useDeferredValue(words);
  const answer = useQuery({ ...findQuery(warehouse, asked), placeholderData: keepPreviousData });
  const found = answer.data ?? [];
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
  const things = found.map((object) => ({ ...describe(object), go: () => navigate(addressOf(warehouse, object)) }));
  const choices = [...pages, ...makes, ...things];
  const isCurrent = asked === words && !answer.isPlaceholderData;
  return { choices, current: isCurrent ? Number.POSITIVE_INFINITY : pages.length + makes.length };
}

const ICONS = { namespace: Folder, table: Table2, view: Eye } as const;

function describe({ kind, namespace, name, columns, comment, matched }: FoundObject): Omit<Choice, "go"> {
  const full = [...namespace, ...(name ? [name] : [])];
  const Icon = ICONS[kind];
  const why = matched.includes("name") ? "" : columns?.length ? columns.slice(0, 3).join(", ") : (comment ?? "");
  const word = `${kind.charAt(0).toUpperCase()}${kind.slice(1)}`;
  return {
    key: `${kind} ${joinName(full)}`,
    icon: <Icon className={`icon kind-${kind}`} aria-hidden />,
    name: full.join("."),
    hint: why ? `${word}: ${why.length > LONGEST_HINT ? `${why.slice(0, LONGEST_HINT)}…` : why}` : word,
  };
}

function addressOf(warehouse: string, { kind, namespace, name }: FoundObject) {
  if (kind === "namespace" || !name) {
    return { to: "/w/$warehouse/tables", params: { warehouse }, search: { in: joinName(namespace) } } as const;
  }
  const id = joinIdentifier({ namespace, name });
  return kind === "table"
    ? ({ to: "/w/$warehouse/tables/$table", params: { warehouse, table: id } } as const)
    : ({ to: "/w/$warehouse/views/$view", params: { warehouse, view: id } } as const);
}
