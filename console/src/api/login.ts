// Login by redirect: OpenID Connect's authorization code with PKCE. It is imported before all pages, and takes what an
// issuer sent back out of the address before anything else reads it.
import { basePath, serverUrl } from "./address.ts";
import type { Answer } from "./client.ts";
import { awaitReturn, beginSession, type Renewal, refuseReturn, setRenewer } from "./session.ts";

export type WebLogin = Answer<"/v1/oauth/logins", "get">["logins"][number];

const KEY = "duckicelake.login";
const RETURN_PATH = `${basePath}/login`;
const LONGEST_LOGIN_MS = 3_600_000;
const SHOWN_CHARS = 200;
const LOGINS_URL = new URL("v1/oauth/logins", serverUrl);

/** What this tab keeps of a login that it began, until the issuer sends it back. */
interface BegunLogin {
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
  readonly issuer: string;
  readonly isIssuerNamed: boolean;
  readonly page: string;
  readonly begunAt: number;
}

/** The issuers at which people log in; none where the server has no such login, or doesn't answer. */
export async function listLogins(signal: AbortSignal): Promise<readonly WebLogin[]> {
  const answer = await fetch(LOGINS_URL, { credentials: "omit", signal });
  return answer.ok ? ((await answer.json()) as { logins: readonly WebLogin[] }).logins : [];
}

/** Browsers hash only on pages that came by https, or from this machine. */
export const canRedirect = isSecureContext;

/** Leave for the issuer. What it sends back is worth something in this tab alone, and once. */
export async function beginLogin(login: WebLogin): Promise<void> {
  if (!login["authorization-endpoint"]) throw new Error(login.problem ?? "The issuer can't be reached.");
  const [state, nonce, verifier] = [makeSecret(), makeSecret(), makeSecret()];
  const begun: BegunLogin = {
    state,
    nonce,
    verifier,
    issuer: login.issuer,
    isIssuerNamed: login["is-issuer-named"] ?? false,
    page: location.pathname + location.search + location.hash,
    begunAt: Date.now(),
  };
  sessionStorage.setItem(KEY, JSON.stringify(begun));
  const url = new URL(login["authorization-endpoint"]);
  const asked = {
    ...login.parameters,
    response_type: "code",
    client_id: login["client-id"],
    redirect_uri: redirectUri(),
    scope: login.scope,
    state,
    nonce,
    code_challenge: encode(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier)))),
    code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(asked)) url.searchParams.set(name, value);
  location.assign(url);
}

/** The address at which the issuer ends its own login, too; null if it names none. No token is in it. */
export function endUrl(login: WebLogin): string | null {
  if (!login["end-session-endpoint"]) return null;
  const url = new URL(login["end-session-endpoint"]);
  url.searchParams.set("client_id", login["client-id"]);
  url.searchParams.set("post_logout_redirect_uri", new URL("ui", serverUrl).href);
  return url.href;
}

function redirectUri(): string {
  return new URL("ui/login", serverUrl).href;
}

/** If an issuer sent us here: put back the page from which the login began, and get the token for the code. */
function takeReturn(): void {
  if (location.pathname !== RETURN_PATH) return;
  const sent = new URLSearchParams(location.search);
  const begun = takeBegun();
  history.replaceState(null, "", begun?.page ?? basePath);
  if (sent.size === 0) return;
  awaitReturn();
  finish(sent, begun).catch((error: unknown) => refuseReturn(error instanceof Error ? error.message : String(error)));
}

function takeBegun(): BegunLogin | null {
  const text = sessionStorage.getItem(KEY);
  sessionStorage.removeItem(KEY);
  const begun = text === null ? null : (JSON.parse(text) as BegunLogin);
  const isOurs = begun !== null && (begun.page === basePath || begun.page.startsWith(`${basePath}/`));
  return isOurs && Date.now() - begun.begunAt < LONGEST_LOGIN_MS ? begun : null;
}

async function finish(sent: URLSearchParams, begun: BegunLogin | null): Promise<void> {
  if (!begun || sent.get("state") !== begun.state) {
    throw new Error("This login wasn't begun in this tab, or too long ago. Sign in once more.");
  }
  const issuer = sent.get("iss");
  if (issuer === null ? begun.isIssuerNamed : issuer !== begun.issuer) {
    throw new Error("The login came back from another issuer than the one that was chosen. Sign in once more.");
  }
  const [error, code] = [sent.get("error"), sent.get("code")];
  if (error !== null || code === null) {
    const why = (sent.get("error_description") ?? error ?? "it gave no code").slice(0, SHOWN_CHARS);
    throw new Error(`${nameIssuer(begun.issuer)} did not log you in: ${why}`);
  }
  await askForTokens({
    grant_type: "authorization_code",
    issuer: begun.issuer,
    code,
    code_verifier: begun.verifier,
    redirect_uri: redirectUri(),
    nonce: begun.nonce,
  });
}

async function askForTokens(form: Readonly<Record<string, string>> & { readonly issuer: string }): Promise<void> {
  const request = { method: "POST", body: new URLSearchParams(form), credentials: "omit" } as const;
  const answer = await fetch(LOGINS_URL, request).catch(() => {
    throw new Error("The server does not answer. It may be down, or the network may be.");
  });
  const said = (await answer.json().catch(() => ({}))) as Partial<Answer<"/v1/oauth/logins", "post">> & {
    error_description?: string;
  };
  if (!answer.ok || !said.access_token) {
    throw new RefusedError(
      said.error_description ?? `The server answered with status ${answer.status}.`,
      answer.status,
    );
  }
  const refreshToken = said.refresh_token ?? null;
  beginSession(said.access_token, said.expires_in ?? null, { issuer: form.issuer, refreshToken });
}

class RefusedError extends Error {
  override readonly name = "RefusedError";
  readonly status: number;
  constructor(message: string, status: number) {
    super(message);
    this.status = status;
  }
}

/** Get the next token. False if the issuer gives none any more; throws if it may do so later. */
async function renew({ issuer, refreshToken }: Renewal): Promise<boolean> {
  if (refreshToken === null) return false;
  try {
    await askForTokens({ grant_type: "refresh_token", issuer, refresh_token: refreshToken });
    return true;
  } catch (error) {
    if (error instanceof RefusedError && error.status < 500 && error.status !== 429) return false;
    throw error;
  }
}

/** What people call the issuer of a login. */
export function nameLogin(login: WebLogin): string {
  return login.label || nameIssuer(login.issuer);
}

/** An issuer's address as people read it. */
export function nameIssuer(issuer: string): string {
  return issuer.replace(/^https?:\/\//, "").replace(/\/$/, "");
}

function makeSecret(): string {
  return encode(crypto.getRandomValues(new Uint8Array(32)));
}

function encode(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}

setRenewer(renew);
takeReturn();
