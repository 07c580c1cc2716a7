// Asks who is there, where the server wants to know. It stands before all pages: what they showed is gone with the session.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { LogIn } from "lucide-react";
import { type FormEvent, type ReactNode, useEffect, useState } from "react";
import { readError } from "../api/client.ts";
import { serverUrl } from "../api/address.ts";
import { beginLogin, canRedirect, endUrl, listLogins, nameIssuer, nameLogin, type WebLogin } from "../api/login.ts";
import { beginSession, currentIssuer, useSession } from "../api/session.ts";
import { Waiting } from "../parts/Notice.tsx";
import { Logo } from "./Logo.tsx";

const LOGINS = "logins";

export function SessionGate({ children }: { children: ReactNode }) {
  const { demand, isReturning } = useSession();
  const client = useQueryClient();
  useEffect(() => {
    // What the gate asks by itself is in no one's session.
    if (demand !== null) client.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== LOGINS });
  }, [demand, client]);
  if (isReturning) return <Returning />;
  return demand === null ? children : <SignIn key={demand} reason={demand} />;
}

function Gate({ title, children }: { title: string; children: ReactNode }) {
  useEffect(() => {
    document.title = `${title} · duckicelake`;
  }, [title]);
  return (
    <main className="gate">
      <div className="card">
        <div className="inside stack">
          <div className="row">
            <Logo />
            <h1>{title}</h1>
          </div>
          {children}
        </div>
      </div>
    </main>
  );
}

function Returning() {
  return (
    <Gate title="Signing in">
      <Waiting lines={3} />
    </Gate>
  );
}

function SignIn({ reason }: { reason: string }) {
  const [trouble, setTrouble] = useState(reason);
  const [isBusy, setBusy] = useState(false);
  const { data: logins, isLoading } = useQuery({
    queryKey: [LOGINS],
    queryFn: ({ signal }) => listLogins(signal),
    retry: 1,
  });
  const attempt = (act: () => Promise<void>) => {
    setBusy(true);
    setTrouble("");
    act().catch((error: unknown) => {
      setTrouble(error instanceof Error ? error.message : String(error));
      setBusy(false);
    });
  };
  const hasLogins = (logins ?? []).length > 0;
  const form = <CredentialForm isBusy={isBusy} isFirst={!hasLogins} attempt={attempt} />;
  return (
    <Gate title="Sign in">
      <p className="quiet">This catalog shows what you may read, once it knows who you are.</p>
      {trouble ? (
        <p className="banner bad" role="alert">
          {trouble}
        </p>
      ) : null}
      {(logins ?? []).map((login) => (
        <Redirect key={login.issuer} login={login} isBusy={isBusy} attempt={attempt} />
      ))}
      {isLoading ? <Waiting lines={3} /> : hasLogins ? <Other>{form}</Other> : form}
      <p className="small quiet">
        The token is kept in this tab until you close it, sign out, or the token ends. Other tabs of this server get it,
        too.
      </p>
    </Gate>
  );
}

type Attempt = (act: () => Promise<void>) => void;

function Redirect({ login, isBusy, attempt }: { login: WebLogin; isBusy: boolean; attempt: Attempt }) {
  const name = nameLogin(login);
  const end = currentIssuer() === login.issuer ? endUrl(login) : null;
  const why = canRedirect
    ? login.problem
    : "Your browser allows this login only where the console has an https address.";
  return (
    <div className="stack tight">
      <button
        type="button"
        className="button primary"
        disabled={isBusy || Boolean(why)}
        onClick={() => attempt(() => beginLogin(login))}
      >
        <LogIn className="icon" aria-hidden /> Sign in with {name}
      </button>
      {login.label ? <p className="small quiet breaks">{nameIssuer(login.issuer)}</p> : null}
      {why ? <p className="small quiet">{why}</p> : null}
      {end ? (
        <p className="small quiet">
          You are still signed in at {name}. <a href={end}>Sign out there, too</a>
        </p>
      ) : null}
    </div>
  );
}

function Other({ children }: { children: ReactNode }) {
  return (
    <details>
      <summary>With a client&rsquo;s secret or a token</summary>
      {children}
    </details>
  );
}

function CredentialForm({ isBusy, isFirst, attempt }: { isBusy: boolean; isFirst: boolean; attempt: Attempt }) {
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const typed = new FormData(event.currentTarget);
    attempt(() => signIn(typed));
  };
  return (
    <form className="stack" onSubmit={submit}>
      <label className="field">
        <span>Client id</span>
        <input name="id" autoComplete="username" autoFocus={isFirst} spellCheck={false} />
      </label>
      <label className="field">
        <span>Client secret</span>
        <input name="secret" type="password" autoComplete="current-password" />
      </label>
      <label className="field">
        <span>Or a token</span>
        <input name="token" type="password" autoComplete="off" aria-describedby="token-hint" />
        <span className="hint" id="token-hint">
          Of this server, or of an issuer that it trusts.
        </span>
      </label>
      <button className={isFirst ? "button primary" : "button"} disabled={isBusy}>
        Sign in
      </button>
    </form>
  );
}

async function signIn(typed: FormData): Promise<void> {
  const token = textOf(typed, "token").trim();
  if (token) {
    if (/[^\x21-\x7e]/.test(token)) throw new Error("That is no token: tokens are letters, digits and a few signs.");
    return beginSession(token, null);
  }
  const [id, secret] = [textOf(typed, "id"), textOf(typed, "secret")];
  if (!id || !secret) throw new Error("Type a client's id and secret, or a token.");
  const body = new URLSearchParams({ grant_type: "client_credentials", scope: "catalog" });
  body.set("client_id", id);
  body.set("client_secret", secret);
  // Without credentials of the browser's own, which else asks for them where ours are wrong.
  const asked = fetch(new URL("v1/oauth/tokens", serverUrl), { method: "POST", body, credentials: "omit" });
  const answer = await asked.catch(() => {
    throw new Error("The server does not answer. It may be down, or the network may be.");
  });
  if (!answer.ok) throw await readRefusal(answer);
  const granted = (await answer.json()) as { access_token: string; expires_in: number };
  beginSession(granted.access_token, granted.expires_in);
}

function textOf(typed: FormData, name: string): string {
  const value = typed.get(name);
  return typeof value === "string" ? value : "";
}

/** OAuth has errors of its own shape. */
async function readRefusal(answer: Response): Promise<Error> {
  const said = (await answer
    .clone()
    .json()
    .catch(() => ({}))) as { error_description?: string };
  return said.error_description ? new Error(said.error_description) : readError(answer);
}
