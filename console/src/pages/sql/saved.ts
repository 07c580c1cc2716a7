// Queries that this browser keeps under a name.
import { useSyncExternalStore } from "react";

const KEY = "duckicelake.queries";
const listeners = new Set<() => void>();
let kept: ReadonlyMap<string, string> = read();

function read(): ReadonlyMap<string, string> {
  try {
    const all = JSON.parse(localStorage.getItem(KEY) ?? "[]") as readonly (readonly [string, string])[];
    return new Map(all.filter((one) => typeof one[0] === "string" && typeof one[1] === "string"));
  } catch {
    return new Map();
  }
}

function change(next: ReadonlyMap<string, string>): void {
  kept = next;
  localStorage.setItem(KEY, JSON.stringify([...next]));
  for (const listener of listeners) listener();
}

export function saveQuery(name: string, text: string): void {
  change(new Map([...kept, [name, text]]));
}

export function forgetQuery(name: string): void {
  change(new Map([...kept].filter(([one]) => one !== name)));
}

// Another tab may save one, too.
addEventListener("storage", ({ key }) => {
  if (key !== KEY) return;
  kept = read();
  for (const listener of listeners) listener();
});

export function useSavedQueries(): ReadonlyMap<string, string> {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => kept,
  );
}
