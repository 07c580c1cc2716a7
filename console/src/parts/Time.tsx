import { useSyncExternalStore } from "react";
import { formatAbsolute, formatRelative } from "./format.ts";

const TICK_MS = 15_000;
let now = new Date();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = new Date();
    for (const one of listeners) one();
  }, TICK_MS);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** A time as it is from now; with its zone where one points at it, or behind it. */
export function Time({ at, isFull = false }: { at: string | number; isFull?: boolean }) {
  useSyncExternalStore(subscribe, () => now);
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return <span>{String(at)}</span>;
  const full = formatAbsolute(time);
  const close = formatRelative(time, new Date());
  return (
    <time dateTime={time.toISOString()} title={full} className="nowrap">
      {isFull ? (
        <>
          {full} <span className="quiet">({close})</span>
        </>
      ) : (
        close
      )}
    </time>
  );
}
