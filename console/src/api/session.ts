// Who looks at the pages: a token, kept for as long as the tab is open. The lineage page keeps it in the same place.
import { useSyncExternalStore } from "react";

const KEY = "duckicelake.token";
const ENDS = "duckicelake.token.ends";
const LONGEST_TIMER_MS = 2 ** 31 - 1;

interface Session {
  readonly token: string | null;
  /** Why whoever looks must sign in; null: they need not, as far as is known. */
  readonly demand: string | null;
}

let session: Session = { token: sessionStorage.getItem(KEY), demand: null };
let timer: ReturnType<typeof setTimeout> | undefined;
const listeners = new Set<() => void>();

function change(next: Session): void {
  session = next;
  for (const listener of listeners) listener();
}

export function currentToken(): string | null {
  return session.token;
}

/** Keep a token. The session ends with it, if it is known when that is. */
export function beginSession(token: string, lifetimeSeconds: number | null): void {
  const ends = lifetimeSeconds === null ? endOf(token) : Date.now() + lifetimeSeconds * 1000;
  sessionStorage.setItem(KEY, token);
  if (ends === null) sessionStorage.removeItem(ENDS);
  else sessionStorage.setItem(ENDS, String(ends));
  change({ token, demand: null });
  watchEnd();
}

/** Forget this token, unless another has taken its place, and ask who is there. */
export function demandSignIn(reason: string, shown: string | null = session.token): void {
  if (session.token !== shown) return;
  forget();
  change({ token: null, demand: reason });
}

export function signOut(): void {
  forget();
  change({ token: null, demand: "" });
}

function forget(): void {
  clearTimeout(timer);
  sessionStorage.removeItem(KEY);
  sessionStorage.removeItem(ENDS);
}

/** When a token of OpenID Connect or of this server says that it ends; null if it says nothing. */
function endOf(token: string): number | null {
  try {
    const payload = JSON.parse(atob((token.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/"))) as unknown;
    const seconds = (payload as { exp?: unknown }).exp;
    return typeof seconds === "number" ? seconds * 1000 : null;
  } catch {
    return null;
  }
}

function watchEnd(): void {
  clearTimeout(timer);
  const ends = Number(sessionStorage.getItem(ENDS) ?? Number.NaN);
  if (Number.isNaN(ends)) return;
  const left = ends - Date.now();
  timer = setTimeout(
    () => (left <= LONGEST_TIMER_MS ? demandSignIn("The token has expired.") : watchEnd()),
    Math.min(Math.max(left, 0), LONGEST_TIMER_MS),
  );
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useSession(): Session {
  return useSyncExternalStore(subscribe, () => session);
}

if (session.token !== null) watchEnd();
