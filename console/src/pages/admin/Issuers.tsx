// Issuers of OpenID Connect that the server trusts.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { FIRST_WAREHOUSE } from "../../api/address.ts";
import { type Issuer, issuersQuery, serverQuery } from "../../api/administration.ts";
import { ActDialog } from "../../parts/Act.tsx";
import { writeCommand } from "../../parts/command.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { splitWords, SureField, TextField } from "../../parts/fields.tsx";
import { LongTable } from "../../parts/LongTable.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import { PeopleTabs } from "./PeopleTabs.tsx";

export function Issuers() {
  const query = useInfiniteQuery(issuersQuery());
  const { data: server } = useQuery(serverQuery());
  const [isAdding, setAdding] = useState(false);
  const [dropped, setDropped] = useState<string | null>(null);
  const own = server?.["settings-issuer"];
  return (
    <div className="body">
      <title>Issuers · duckicelake</title>
      <Head title="Issuers" comment="OpenID Connect: who may say who somebody is.">
        <button type="button" className="button primary" onClick={() => setAdding(true)}>
          Trust an issuer
        </button>
      </Head>
      <PeopleTabs />
      {own ? (
        <p>
          The settings name <code>{own}</code>.
        </p>
      ) : null}
      <Card>
        <Loaded query={query} lines={3}>
          {({ pages }) => {
            const all = pages.flatMap((page) => page.issuers);
            if (all.length === 0) {
              return (
                <Empty title={own ? "No issuers beside that of the settings" : "No issuers are trusted"}>
                  Once one is trusted, its users log in with their tokens, and its groups can be granted something.
                </Empty>
              );
            }
            return (
              <LongTable
                name="Issuers"
                rows={all}
                keyOf={({ name }) => name}
                columns={[
                  { name: "Name", show: ({ name }: Issuer) => <strong>{name}</strong> },
                  { name: "URL", show: ({ url }) => <span className="mono breaks">{url}</span> },
                  { name: "Audience", show: ({ audience }) => <span className="mono breaks">{audience}</span> },
                  { name: "Claims", show: (row) => <span className="mono breaks">{describeClaims(row)}</span> },
                  { name: "Scopes", show: ({ scopes }) => <span className="mono breaks">{scopes.join(" ")}</span> },
                  { name: "Added", show: ({ created }) => (created ? <Time at={created} /> : null) },
                  {
                    name: "Drop",
                    kind: "hidden",
                    show: ({ name }) => (
                      <button
                        type="button"
                        className="button small"
                        aria-label={`Drop ${name}`}
                        onClick={() => setDropped(name)}
                      >
                        Drop
                      </button>
                    ),
                  },
                ]}
              />
            );
          }}
        </Loaded>
      </Card>
      {isAdding ? <Add close={() => setAdding(false)} /> : null}
      {dropped === null ? null : <Drop name={dropped} close={() => setDropped(null)} />}
    </div>
  );
}

function describeClaims(issuer: Issuer): string {
  const claims = { name: issuer["subject-claim"], groups: issuer["group-claim"], scopes: issuer["scope-claim"] };
  return Object.entries(claims)
    .flatMap(([what, claim]) => (claim ? [`${what}: ${claim}`] : []))
    .join(", ");
}

function Add({ close }: { close: () => void }) {
  const [name, setName] = useState("");
  const [url, setUrl] = useState("");
  const [audience, setAudience] = useState("");
  const [keys, setKeys] = useState("");
  const [subject, setSubject] = useState("sub");
  const [group, setGroup] = useState("");
  const [scopes, setScopes] = useState("grants");
  const words = splitWords(scopes);
  const given = {
    ...(keys ? { "jwks-url": keys } : {}),
    ...(subject === "sub" ? {} : { "subject-claim": subject }),
    ...(group ? { "group-claim": group } : {}),
    ...(scopes === "grants" ? {} : { scopes: words }),
  };
  const command = writeCommand("issuer add", FIRST_WAREHOUSE, [name || "NAME", url || "URL"], {
    audience: audience || "AUDIENCE",
    "jwks-url": keys,
    "subject-claim": subject === "sub" ? "" : subject,
    "group-claim": group,
    scope: scopes === "grants" ? [] : words,
  });
  return (
    <ActDialog
      title="Trust an issuer"
      verb="Trust it"
      isReady={name !== "" && url !== "" && audience !== ""}
      request={{
        method: "POST",
        path: "/management/v1/issuers",
        warehouse: FIRST_WAREHOUSE,
        body: { name, url, audience, ...given },
      }}
      command={command}
      close={close}
    >
      <p>
        Its tokens are accepted within a second. A server that runs without logins needs them from its next start on.
      </p>
      <div className="row top">
        <TextField name="Name" hint="Lower-case letters, digits, _ . -" value={name} change={setName} isFirst />
        <TextField
          name="Audience"
          hint="What its tokens call this server."
          value={audience}
          change={setAudience}
          isMono
        />
      </div>
      <TextField name="URL" placeholder="https://id.example" hint="The claim iss." value={url} change={setUrl} isMono />
      <div className="row top">
        <TextField name="Claim of groups" placeholder="groups" value={group} change={setGroup} isMono />
        <TextField name="Claim of the caller" value={subject} change={setSubject} isMono />
      </div>
      <TextField name="Address of its keys" hint="None: as it says itself." value={keys} change={setKeys} isMono />
      <TextField
        name="Scopes"
        hint="What each of its tokens has. grants: what is granted to its users and groups."
        value={scopes}
        change={setScopes}
        isMono
      />
    </ActDialog>
  );
}

function Drop({ name, close }: { name: string; close: () => void }) {
  const [typed, setTyped] = useState("");
  return (
    <ActDialog
      title={`Trust ${name} no more`}
      verb="Drop"
      isDangerous
      isReady={typed === name}
      request={{
        method: "DELETE",
        path: "/management/v1/issuers/{issuer}",
        warehouse: FIRST_WAREHOUSE,
        values: { issuer: name },
      }}
      command={writeCommand("issuer drop", FIRST_WAREHOUSE, [name])}
      close={close}
    >
      <p>Its tokens end within a second. Its users stay registered, with what they were granted.</p>
      <SureField word={name} value={typed} change={setTyped} />
    </ActDialog>
  );
}
