// Client secrets and tokens: made, shown once, replaced, revoked.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { FIRST_WAREHOUSE } from "../../api/address.ts";
import { ownTokensQuery, type Secret, secretsQuery } from "../../api/administration.ts";
import { ActDialog, type Request } from "../../parts/Act.tsx";
import { writeCommand } from "../../parts/command.ts";
import { Card } from "../../parts/Card.tsx";
import { Code } from "../../parts/Copy.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import { ChoiceField, splitWords, TextField } from "../../parts/fields.tsx";
import { plural } from "../../parts/format.ts";
import { type Column, LongTable } from "../../parts/LongTable.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";

type SecretKind = "client-secret" | "token";

/** Whose secrets they are: a principal's, or the caller's own. */
type Owner = { readonly name: string; readonly isOwn: boolean; readonly kind: string };

const DAY_SECONDS = 86_400;

export function PrincipalSecrets({ name, kind }: { name: string; kind: string }) {
  const query = useQuery(secretsQuery(name));
  return (
    <Loaded query={query} lines={3}>
      {({ secrets }) => <SecretList owner={{ name, isOwn: false, kind }} secrets={secrets} />}
    </Loaded>
  );
}

export function OwnTokens({ name }: { name: string }) {
  const query = useQuery(ownTokensQuery());
  return (
    <Loaded query={query} lines={3}>
      {({ secrets }) => <SecretList owner={{ name, isOwn: true, kind: "user" }} secrets={secrets} />}
    </Loaded>
  );
}

function SecretList({ owner, secrets }: { owner: Owner; secrets: readonly Secret[] }) {
  const [isMaking, setMaking] = useState(false);
  const [replaced, setReplaced] = useState<Secret | null>(null);
  const [revoked, setRevoked] = useState<Secret | null>(null);
  const [made, setMade] = useState<Secret | null>(null);
  const columns: readonly Column<Secret>[] = [
    { name: "What", show: ({ kind }) => <span className="tag">{kind === "token" ? "token" : "client secret"}</span> },
    { name: "For", show: ({ description }) => <span className="breaks">{description || "—"}</span> },
    { name: "Made", show: ({ created }) => <Time at={created} /> },
    { name: "Last used", show: (row) => (row["last-used"] ? <Time at={row["last-used"]} /> : "never") },
    { name: "Ends", show: (row) => <Ending at={row.expires} /> },
    {
      name: "Scopes",
      show: ({ scopes }) => (scopes ? <span className="mono breaks">{scopes.join(" ")}</span> : "all"),
    },
    {
      name: "Change",
      kind: "hidden",
      show: (row) => (
        <span className="row tight nowrap">
          <button type="button" className="button small" onClick={() => setReplaced(row)}>
            Replace
          </button>
          <button type="button" className="button small" onClick={() => setRevoked(row)}>
            Revoke
          </button>
        </span>
      ),
    },
  ];
  return (
    <Card
      title={owner.isOwn ? "Tokens and secrets of yours" : "Secrets and tokens"}
      aside={
        <button type="button" className="button small" onClick={() => setMaking(true)}>
          Make one
        </button>
      }
    >
      {secrets.length === 0 ? (
        <Empty title="There are none">
          {owner.isOwn ? "A token of your own may what you may, or less." : "It can’t log in by this server yet."}
        </Empty>
      ) : (
        <LongTable name="Secrets and tokens" rows={secrets} columns={columns} keyOf={(row) => row["secret-id"]} />
      )}
      {isMaking ? <Make owner={owner} close={() => setMaking(false)} show={setMade} /> : null}
      {replaced ? <Replace owner={owner} old={replaced} close={() => setReplaced(null)} show={setMade} /> : null}
      {revoked ? <Revoke owner={owner} secret={revoked} close={() => setRevoked(null)} /> : null}
      {made ? <Shown owner={owner} made={made} close={() => setMade(null)} /> : null}
    </Card>
  );
}

function Ending({ at }: { at: string | null | undefined }) {
  if (!at) return <>when it is revoked</>;
  return new Date(at) < new Date() ? <span className="tag bad">ended</span> : <Time at={at} />;
}

function placeOf({ name, isOwn }: Owner): Pick<Request, "path" | "warehouse" | "values"> {
  return isOwn
    ? { path: "/management/v1/me/tokens", warehouse: FIRST_WAREHOUSE }
    : {
        path: "/management/v1/principals/{principal}/secrets",
        warehouse: FIRST_WAREHOUSE,
        values: { principal: name },
      };
}

type Options = Parameters<typeof writeCommand>[3];

/** The command that makes one. */
function commandOf({ name, isOwn }: Owner, options: Options): string {
  return isOwn
    ? writeCommand("token create", FIRST_WAREHOUSE, [], options)
    : writeCommand("principal secret create", FIRST_WAREHOUSE, [name], options);
}

const KINDS = [
  ["client-secret", "Client secret, to log in with"],
  ["token", "Token, sent as it is"],
] as const;
const LIVES = [
  ["1", "1 day"],
  ["30", "30 days"],
  ["90", "90 days"],
  ["365", "1 year"],
  ["", "As the server has it"],
] as const;

interface MakeProps {
  readonly owner: Owner;
  readonly close: () => void;
  readonly show: (made: Secret) => void;
}

function Make({ owner, close, show }: MakeProps) {
  const [kind, setKind] = useState<SecretKind>(owner.kind === "service" ? "client-secret" : "token");
  const [description, setDescription] = useState("");
  const [days, setDays] = useState<(typeof LIVES)[number][0]>(owner.isOwn ? "" : "90");
  const [scopes, setScopes] = useState("");
  const words = splitWords(scopes);
  const seconds = Number(days) * DAY_SECONDS;
  const body = {
    kind,
    ...(description ? { description } : {}),
    ...(seconds ? { "expires-in": seconds } : {}),
    ...(words.length > 0 ? { scopes: words } : {}),
  };
  const standard = owner.isOwn ? "token" : "client-secret";
  const options = {
    kind: kind === standard ? "" : kind,
    "expires-in": seconds ? String(seconds) : "",
    scope: words,
    description,
  };
  return (
    <ActDialog
      title={owner.isOwn ? "Make a token of yours" : `Make a secret for ${owner.name}`}
      verb="Make it"
      request={{ ...placeOf(owner), method: "POST", body }}
      command={commandOf(owner, options)}
      places={{ scopes: /scope/, days: /expires|valid|longer/i, description: /description/i }}
      close={close}
      answered={(answer) => show(answer as Secret)}
    >
      <p>It is shown once, here. The server keeps only its hash.</p>
      <ChoiceField name="What" value={kind} options={KINDS} change={setKind} />
      <TextField
        name="What for"
        placeholder="laptop"
        value={description}
        change={setDescription}
        at="description"
        isFirst
      />
      <ChoiceField
        name="Valid for"
        value={days}
        options={LIVES}
        change={setDays}
        at="days"
        hint={owner.isOwn ? "Never longer than what you logged in with." : "As the server has it: until it is revoked."}
      />
      <TextField
        name="Scopes"
        hint={owner.isOwn ? "None: all of yours." : "None: all of the principal’s."}
        value={scopes}
        change={setScopes}
        at="scopes"
        isMono
      />
    </ActDialog>
  );
}

const GRACES = [
  ["0", "At once"],
  ["3600", "In an hour"],
  ["86400", "In a day"],
  ["604800", "In a week"],
] as const;

function Replace({ owner, old, close, show }: MakeProps & { old: Secret }) {
  const [grace, setGrace] = useState<(typeof GRACES)[number][0]>("86400");
  const id = old["secret-id"];
  const what = old.kind === "token" ? "token" : "client secret";
  const request: Request = owner.isOwn
    ? {
        method: "POST",
        path: "/management/v1/me/tokens/{secret_id}/rotate",
        warehouse: FIRST_WAREHOUSE,
        values: { secret_id: id },
        body: { "end-old-in": Number(grace) },
      }
    : {
        ...placeOf(owner),
        method: "POST",
        body: {
          kind: old.kind,
          description: old.description,
          "end-others-in": Number(grace),
          ...(old.scopes ? { scopes: old.scopes } : {}),
        },
      };
  const kept = {
    kind: old.kind === "client-secret" ? "" : old.kind,
    scope: old.scopes ?? [],
    description: old.description,
  };
  return (
    <ActDialog
      title={`Replace the ${what}`}
      verb="Replace"
      request={request}
      command={
        owner.isOwn
          ? writeCommand("token rotate", FIRST_WAREHOUSE, [id], { "end-old-in": grace })
          : commandOf(owner, { ...kept, "end-others-in": grace })
      }
      close={close}
      answered={(answer) => show(answer as Secret)}
    >
      <p>
        {owner.isOwn
          ? "A new one with the same scopes is made, and shown once. The old one still works for a while, so that whoever uses it can change over."
          : `A new one with the same scopes is made, and shown once. All other ${what}s of ${owner.name} still work for a while, so that whoever uses them can change over.`}
      </p>
      <ChoiceField name="The old one ends" value={grace} options={GRACES} change={setGrace} />
    </ActDialog>
  );
}

function Revoke({ owner, secret, close }: { owner: Owner; secret: Secret; close: () => void }) {
  const id = secret["secret-id"];
  const request: Request = owner.isOwn
    ? {
        method: "DELETE",
        path: "/management/v1/me/tokens/{secret_id}",
        warehouse: FIRST_WAREHOUSE,
        values: { secret_id: id },
      }
    : {
        method: "DELETE",
        path: "/management/v1/principals/{principal}/secrets/{secret_id}",
        warehouse: FIRST_WAREHOUSE,
        values: { principal: owner.name, secret_id: id },
      };
  return (
    <ActDialog
      title={`Revoke the ${secret.kind === "token" ? "token" : "client secret"}`}
      verb="Revoke"
      isDangerous
      request={request}
      command={
        owner.isOwn
          ? writeCommand("token revoke", FIRST_WAREHOUSE, [id])
          : writeCommand("principal secret revoke", FIRST_WAREHOUSE, [owner.name, id])
      }
      close={close}
    >
      <p>
        {secret.description ? `What was made for “${secret.description}” ends` : "It ends"} within a second, and so do
        tokens that were got by it. This can&rsquo;t be taken back.
      </p>
    </ActDialog>
  );
}

/** A secret that was made: only the answer to that has it. */
function Shown({ owner, made, close }: { owner: Owner; made: Secret; close: () => void }) {
  const credential = made.kind === "client-secret" ? `${owner.name}:${made.secret ?? ""}` : (made.secret ?? "");
  const ends = made.expires ? (new Date(made.expires).getTime() - Date.now()) / 1000 / DAY_SECONDS : null;
  return (
    <Dialog label="The secret" close={close}>
      <div className="inside">
        <h2>{made.kind === "client-secret" ? "The client secret" : "The token"}</h2>
        <p className="banner">Copy it now: it is not shown again.</p>
        <Code text={credential} what={made.kind === "client-secret" ? "the credential" : "the token"} />
        <p className="small quiet">
          {made.kind === "client-secret"
            ? "Clients take it as credential=id:secret."
            : "Clients take it as token=…, or send it as Authorization: Bearer."}
          {ends === null ? " It is valid until it is revoked." : ` It is valid for ${plural(Math.round(ends), "day")}.`}
        </p>
        <div className="ends">
          <button type="button" className="button primary" onClick={close}>
            I have it
          </button>
        </div>
      </div>
    </Dialog>
  );
}
