// Who looks at the pages: a token, kept for as long as the tab is open.
// Tabs hand each other the token while one of them is open, and sign out together.
import { useSyncExternalStore } from "react";
import { serverUrl } from "./address.ts";

const KEY = "duckicelake.token";
const ENDS = "duckicelake.token.ends";
const RENEWAL = "duckicelake.token.renewal";
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const RENEWED_BEFORE_MS = 60_000;
const AGAIN_MS = 10_000;

/** How a login by redirect goes on. Only the tab that logged in has the refresh token: issuers take each one once. */
export interface Renewal {
  readonly issuer: string;
  readonly refreshToken: string | null;
}

interface Session {
  readonly token: string | null;
  /** Why whoever looks must sign in; null: they need not, as far as is known. */
  readonly demand: string | null;
  /** An issuer sent them back, and the token isn't here yet. */
  readonly isReturning: boolean;
}

/** A token that a tab hands to the others, and the one in whose place it comes. */
interface SaidToken {
  readonly kind: "token";
  readonly token: string;
  readonly ends: string | null;
  readonly issuer: string | null;
  readonly instead: string | null;
}

/** What tabs say to each other. */
type Said = SaidToken | { readonly kind: "ask" } | { readonly kind: "end" };

let session: Session = { token: sessionStorage.getItem(KEY), demand: null, isReturning: false };
let timer: ReturnType<typeof setTimeout> | undefined;
let refused: string | null = null;
let renewing: Promise<boolean> | null = null;
let renewer: (renewal: Renewal) => Promise<boolean> = async () => false;
const listeners = new Set<() => void>();
const tabs = new BroadcastChannel(`duckicelake ${serverUrl}`);

function change(next: Partial<Session>): void {
  session = { ...session, ...next };
  for (const listener of listeners) listener();
}

export function currentToken(): string | null {
  return session.token;
}

/** The issuer at which whoever looks logged in last, if that was by redirect. */
export function currentIssuer(): string | null {
  return readRenewal()?.issuer ?? null;
}

/** Keep a token. The session ends with it, if it is known when that is. */
export function beginSession(token: string, lifetimeSeconds: number | null, renewal: Renewal | null = null): void {
  const ends = lifetimeSeconds === null ? endOf(token) : Date.now() + lifetimeSeconds * 1000;
  const instead = session.token;
  keep(token, ends === null ? null : String(ends), renewal);
  sayToken(instead);
}

function keep(token: string, ends: string | null, renewal: Renewal | null): void {
  sessionStorage.setItem(KEY, token);
  put(ENDS, ends);
  put(RENEWAL, renewal === null ? null : JSON.stringify(renewal));
  change({ token, demand: null, isReturning: false });
  watchEnd();
}

function put(key: string, value: string | null): void {
  if (value === null) sessionStorage.removeItem(key);
  else sessionStorage.setItem(key, value);
}

/** Forget this token, unless another has taken its place, and ask who is there. Whoever is asked already keeps the reason. */
export function demandSignIn(reason: string, shown: string | null = session.token): void {
  if (session.token !== shown || session.isReturning) return;
  if (shown === null && session.demand !== null) return;
  refused = shown;
  forget();
  change({ token: null, demand: reason });
  tabs.postMessage({ kind: "ask" } satisfies Said);
}

/** Sign out of all tabs. The issuer stays in mind: it may be signed out of, too. */
export function signOut(): void {
  endSession();
  tabs.postMessage({ kind: "end" } satisfies Said);
}

function endSession(): void {
  const renewal = readRenewal();
  forget();
  if (renewal) put(RENEWAL, JSON.stringify({ ...renewal, refreshToken: null }));
  change({ token: null, demand: "" });
}

/** Wait for the token of a login by redirect. */
export function awaitReturn(): void {
  forget();
  change({ token: null, isReturning: true });
}

export function refuseReturn(reason: string): void {
  change({ demand: reason, isReturning: false });
}

function forget(): void {
  clearTimeout(timer);
  for (const key of [KEY, ENDS, RENEWAL]) sessionStorage.removeItem(key);
}

function readRenewal(): Renewal | null {
  const text = sessionStorage.getItem(RENEWAL);
  return text === null ? null : (JSON.parse(text) as Renewal);
}

export function setRenewer(next: (renewal: Renewal) => Promise<boolean>): void {
  renewer = next;
}

/** Get another token in the place of this one; false if there is none, or not now. */
export async function renewSession(shown: string): Promise<boolean> {
  if (session.token !== shown) return session.token !== null;
  const renewal = readRenewal();
  if (renewal === null || renewal.refreshToken === null) return false;
  renewing ??= renewOnce(renewal).finally(() => {
    renewing = null;
  });
  return renewing;
}

async function renewOnce(renewal: Renewal): Promise<boolean> {
  try {
    const isRenewed = await renewer(renewal);
    if (!isRenewed) put(RENEWAL, JSON.stringify({ ...renewal, refreshToken: null }));
    return isRenewed;
  } catch {
    return false; // no answer now; it is asked again until the token ends
  }
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

/** Renew the token a little before its end, or ask who is there at its end. */
function watchEnd(): void {
  clearTimeout(timer);
  const ends = Number(sessionStorage.getItem(ENDS) ?? Number.NaN);
  if (Number.isNaN(ends)) return;
  const left = ends - Date.now();
  const wait = left - (readRenewal()?.refreshToken ? Math.min(RENEWED_BEFORE_MS, left / 2) : 0);
  const act = () => (wait > LONGEST_TIMER_MS ? watchEnd() : void endOrRenew(ends));
  timer = setTimeout(act, Math.min(Math.max(wait, 0), LONGEST_TIMER_MS));
}

async function endOrRenew(ends: number): Promise<void> {
  const shown = session.token;
  if (shown === null || (await renewSession(shown)) || session.token !== shown) return;
  const left = ends - Date.now();
  if (left <= 0) demandSignIn("The token has expired.", shown);
  else timer = setTimeout(() => void endOrRenew(ends), Math.min(AGAIN_MS, left));
}

function sayToken(instead: string | null): void {
  if (session.token === null) return;
  const [ends, issuer] = [sessionStorage.getItem(ENDS), currentIssuer()];
  tabs.postMessage({ kind: "token", token: session.token, ends, issuer, instead } satisfies Said);
}

tabs.onmessage = ({ data }: MessageEvent<Said>) => {
  if (data.kind === "ask") sayToken(null);
  else if (data.kind === "end") {
    if (session.token !== null) endSession();
  } else if (takes(data)) {
    keep(data.token, data.ends, data.issuer === null ? null : { issuer: data.issuer, refreshToken: null });
  }
};

/** A tab takes another's token where it has none and needs one, or where its own was renewed. */
function takes({ token, ends, instead }: SaidToken): boolean {
  if (token === refused || (ends !== null && Number(ends) <= Date.now())) return false;
  return session.token === null ? session.demand !== null : session.token === instead;
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useSession(): Session {
  return useSyncExternalStore(subscribe, () => session);
}

if (session.token !== null) watchEnd();
