// Asks who is there, where the server wants to know. It stands before all pages: what they showed is gone with the session.
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useEffect, useState } from "react";
import { readError } from "../api/client.ts";
import { serverUrl } from "../api/address.ts";
import { beginSession, useSession } from "../api/session.ts";
import { Logo } from "./Logo.tsx";

export function SessionGate({ children }: { children: ReactNode }) {
  const { demand } = useSession();
  const client = useQueryClient();
  useEffect(() => {
    if (demand !== null) client.clear();
  }, [demand, client]);
  return demand === null ? children : <SignIn reason={demand} />;
}

function SignIn({ reason }: { reason: string }) {
  const [trouble, setTrouble] = useState(reason);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    setBusy(true);
    setTrouble("");
    try {
      await signIn(new FormData(event.currentTarget));
    } catch (error) {
      setTrouble(error instanceof Error ? error.message : String(error));
      setBusy(false);
    }
  };
  useEffect(() => {
    document.title = "Sign in · duckicelake";
  }, []);
  return (
    <main className="gate">
      <form className="card" onSubmit={(event) => void submit(event)}>
        <div className="inside stack">
          <div className="row">
            <Logo />
            <h1>Sign in</h1>
          </div>
          <p className="quiet">This catalog shows what you may read, once it knows who you are.</p>
          {trouble ? (
            <p className="banner bad" role="alert">
              {trouble}
            </p>
          ) : null}
          <label className="field">
            <span>Client id</span>
            <input name="id" autoComplete="username" autoFocus spellCheck={false} />
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
          <button className="button primary" disabled={isBusy}>
            Sign in
          </button>
          <p className="small quiet">The token is kept in this tab until you close it, sign out, or the token ends.</p>
        </div>
      </form>
    </main>
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
