// An issuer of OpenID Connect: how its tokens are read, and how people sign in to the console there.
import { useState } from "react";
import { FIRST_WAREHOUSE, serverUrl } from "../../api/address.ts";
import type { Issuer } from "../../api/administration.ts";
import { ActDialog, type Request } from "../../parts/Act.tsx";
import { writeCommand } from "../../parts/command.ts";
import { Code } from "../../parts/Copy.tsx";
import { splitWords, TextField } from "../../parts/fields.tsx";

const SCOPES = "grants";
const WEB_SCOPES = "openid";
const SHOWN_SECRET = "SECRET";

/** What the server's refusals are about, the narrower words first. */
const PLACES = {
  keys: /jwks-url/,
  webScopes: /web-scopes/,
  parameters: /web-parameters/,
  secret: /web-secret|SECRET_KEYS/,
  client: /web-client/,
  leeway: /leeway/,
  label: /label/,
  group: /group-claim/,
  subject: /subject-claim/,
  scopes: /scope/,
  audience: /audience/,
  url: /\burl\b|discovery/i,
  name: /name|already/,
};

interface Typed {
  readonly name: string;
  readonly url: string;
  readonly audience: string;
  readonly keys: string;
  readonly subject: string;
  readonly group: string;
  readonly scopes: string;
  readonly leeway: string;
  readonly label: string;
  readonly client: string;
  readonly webScopes: string;
  readonly parameters: string;
  readonly secret: string;
}

function read(issuer: Issuer | undefined): Typed {
  return {
    name: issuer?.name ?? "",
    url: issuer?.url ?? "",
    audience: issuer?.audience ?? "",
    keys: issuer?.["jwks-url"] ?? "",
    subject: issuer?.["subject-claim"] ?? "sub",
    group: issuer?.["group-claim"] ?? "",
    scopes: issuer?.scopes.join(" ") ?? SCOPES,
    leeway: String(issuer?.leeway ?? 30),
    label: issuer?.label ?? "",
    client: issuer?.["web-client-id"] ?? "",
    webScopes: issuer?.["web-scopes"].join(" ") ?? WEB_SCOPES,
    parameters: issuer?.["web-parameters"].join(" ") ?? "",
    secret: "",
  };
}

/** All of an issuer but what the server makes of it, with what is to differ. */
export function changeRequest(issuer: Issuer, change: object): Request {
  const { created: _created, "has-web-secret": _secret, ...kept } = issuer;
  return {
    method: "POST",
    path: "/management/v1/issuers/{issuer}",
    warehouse: FIRST_WAREHOUSE,
    values: { issuer: issuer.name },
    body: { ...kept, ...change },
  };
}

/** A number; what is none is left as it is, for the server to refuse. */
function readNumber(text: string): number | string {
  return /^-?\d+$/.test(text.trim()) ? Number(text) : text;
}

/** What is typed, as the API has it; without what is so by default. */
function write(typed: Typed, isWhole: boolean): Record<string, unknown> {
  const given = {
    "jwks-url": typed.keys || null,
    "subject-claim": typed.subject,
    "group-claim": typed.group || null,
    scopes: splitWords(typed.scopes),
    leeway: readNumber(typed.leeway),
    label: typed.label,
    "web-client-id": typed.client || null,
    "web-scopes": splitWords(typed.webScopes),
    "web-parameters": splitWords(typed.parameters),
  };
  const usual: Record<string, unknown> = {
    "jwks-url": null,
    "subject-claim": "sub",
    "group-claim": null,
    scopes: [SCOPES],
    leeway: 30,
    label: "",
    "web-client-id": null,
    "web-scopes": [WEB_SCOPES],
    "web-parameters": [],
  };
  const isUsual = (name: string, value: unknown) => JSON.stringify(value) === JSON.stringify(usual[name]);
  return Object.fromEntries(Object.entries(given).filter(([name, value]) => isWhole || !isUsual(name, value)));
}

function command(typed: Typed, issuer: Issuer | undefined): string {
  const before = read(issuer);
  const given = (name: keyof Typed) => (typed[name] === before[name] ? undefined : typed[name]);
  const words = (name: keyof Typed) => (typed[name] === before[name] ? undefined : splitWords(typed[name]));
  const options = {
    audience: issuer ? given("audience") : typed.audience || "AUDIENCE",
    "jwks-url": given("keys"),
    "subject-claim": given("subject"),
    "group-claim": given("group"),
    scope: words("scopes"),
    leeway: given("leeway"),
    label: given("label"),
    "web-client-id": given("client"),
    "web-scope": words("webScopes"),
    "web-parameter": words("parameters"),
    "web-secret": typed.secret !== "",
  };
  const verb = issuer ? "issuer change" : "issuer add";
  const place = issuer ? [issuer.name] : [typed.name || "NAME", typed.url || "URL"];
  const written = writeCommand(verb, FIRST_WAREHOUSE, place, options);
  return typed.secret ? `${written} < secret` : written;
}

export function IssuerForm({ issuer, close }: { issuer?: Issuer; close: () => void }) {
  const [typed, setTyped] = useState(() => read(issuer));
  const set = (name: keyof Typed) => (value: string) => setTyped({ ...typed, [name]: value });
  const { name, url, audience, secret } = typed;
  const written = write(typed, Boolean(issuer));
  const request: Request = issuer
    ? changeRequest(issuer, { audience, ...written })
    : {
        method: "POST",
        path: "/management/v1/issuers",
        warehouse: FIRST_WAREHOUSE,
        body: { name, url, audience, ...written },
      };
  const bodyWith = (text: string) =>
    text ? { ...(request.body as object), "web-secret": text } : (request.body as object);
  return (
    <ActDialog
      title={issuer ? `Edit ${issuer.name}` : "Trust an issuer"}
      verb={issuer ? "Change it" : "Trust it"}
      isReady={name !== "" && url !== "" && audience !== ""}
      request={{ ...request, body: bodyWith(secret) }}
      shown={bodyWith(secret && SHOWN_SECRET)}
      command={command(typed, issuer)}
      places={PLACES}
      close={close}
    >
      <p>
        {issuer
          ? "What changes counts within a second."
          : "Its tokens are accepted within a second. A server that runs without logins needs them from its next start on."}
      </p>
      <div className="row top">
        {issuer ? null : (
          <TextField
            name="Name"
            hint="Lower-case letters, digits, _ . -"
            value={name}
            change={set("name")}
            at="name"
            isFirst
            isRequired
          />
        )}
        <TextField
          name="Audience"
          hint="What its tokens call this server."
          value={audience}
          change={set("audience")}
          at="audience"
          isRequired
          isMono
        />
      </div>
      {issuer ? null : (
        <TextField
          name="URL"
          placeholder="https://id.example"
          hint="The claim iss."
          value={url}
          change={set("url")}
          at="url"
          isRequired
          isMono
        />
      )}
      <div className="row top">
        <TextField
          name="Claim of groups"
          placeholder="groups"
          value={typed.group}
          change={set("group")}
          at="group"
          isMono
        />
        <TextField name="Claim of the caller" value={typed.subject} change={set("subject")} at="subject" isMono />
      </div>
      <TextField
        name="Scopes"
        hint="What each of its tokens has. grants: what is granted to its users and groups."
        value={typed.scopes}
        change={set("scopes")}
        at="scopes"
        isMono
      />
      <details open={Boolean(issuer?.["web-client-id"])}>
        <summary>Sign in to the console there</summary>
        <div className="stack">
          <p className="small">
            Register a client there for these addresses, first where people come back to, then where they are after they
            have signed out:
          </p>
          <Code
            what="the addresses"
            text={`${new URL("ui/login", serverUrl).href}\n${new URL("ui", serverUrl).href}`}
          />
          <div className="row top">
            <TextField
              name="Client"
              hint="Its id there. None: no one signs in."
              value={typed.client}
              change={set("client")}
              at="client"
              isMono
            />
            <TextField
              name="Label"
              hint="What the page to sign in calls it."
              placeholder="Corp SSO"
              value={typed.label}
              change={set("label")}
              at="label"
            />
          </div>
          <TextField
            name="Scopes to ask for"
            hint="openid offline_access asks for sessions that are renewed."
            value={typed.webScopes}
            change={set("webScopes")}
            at="webScopes"
            isMono
          />
          <TextField
            name="Secret of the client"
            hint={
              issuer?.["has-web-secret"]
                ? "None typed: it stays as it is. It is kept encrypted, and never shown again."
                : "None: the client is public. It is kept encrypted, and never shown again."
            }
            value={secret}
            change={set("secret")}
            at="secret"
            isSecret
          />
          <TextField
            name="Other parameters"
            hint="What its page is sent, too: prompt=consent access_type=offline"
            value={typed.parameters}
            change={set("parameters")}
            at="parameters"
            isMono
          />
        </div>
      </details>
      <details>
        <summary>Keys and clock</summary>
        <TextField
          name="Address of its keys"
          hint="None: as it says itself."
          value={typed.keys}
          change={set("keys")}
          at="keys"
          isMono
        />
        <TextField
          name="Leeway"
          hint="Seconds by which its clock may differ."
          value={typed.leeway}
          change={set("leeway")}
          at="leeway"
        />
      </details>
    </ActDialog>
  );
}
