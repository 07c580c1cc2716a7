// Issuers of OpenID Connect that the server trusts.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { FIRST_WAREHOUSE } from "../../api/address.ts";
import { type Issuer, issuersQuery, serverQuery } from "../../api/administration.ts";
import { ActDialog } from "../../parts/Act.tsx";
import { writeCommand } from "../../parts/command.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { SureField } from "../../parts/fields.tsx";
import { LongTable } from "../../parts/LongTable.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import { changeRequest, IssuerForm } from "./IssuerForm.tsx";
import { PeopleTabs } from "./PeopleTabs.tsx";

export function Issuers() {
  const query = useInfiniteQuery(issuersQuery());
  const { data: server } = useQuery(serverQuery());
  const [act, setAct] = useState<{ readonly kind: "add" | "edit" | "switch" | "drop"; readonly issuer?: Issuer }>();
  const close = () => setAct(undefined);
  const own = server?.["settings-issuer"];
  return (
    <div className="body">
      <title>Issuers · duckicelake</title>
      <Head title="Issuers" comment="OpenID Connect: who may say who a caller is, and where people sign in.">
        <button type="button" className="button primary" onClick={() => setAct({ kind: "add" })}>
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
                  { name: "Sign-in", show: (row) => describeSignIn(row) },
                  { name: "Added", show: ({ created }) => (created ? <Time at={created} /> : null) },
                  {
                    name: "Acts",
                    kind: "hidden",
                    show: (issuer) => (
                      <div className="row">
                        <Act name="Edit" issuer={issuer} act={() => setAct({ kind: "edit", issuer })} />
                        <Act
                          name={issuer["is-disabled"] ? "Enable" : "Disable"}
                          issuer={issuer}
                          act={() => setAct({ kind: "switch", issuer })}
                        />
                        <Act name="Drop" issuer={issuer} act={() => setAct({ kind: "drop", issuer })} />
                      </div>
                    ),
                  },
                ]}
              />
            );
          }}
        </Loaded>
      </Card>
      {act?.kind === "add" ? <IssuerForm close={close} /> : null}
      {act?.kind === "edit" && act.issuer ? <IssuerForm issuer={act.issuer} close={close} /> : null}
      {act?.kind === "switch" && act.issuer ? <Switch issuer={act.issuer} close={close} /> : null}
      {act?.kind === "drop" && act.issuer ? <Drop name={act.issuer.name} close={close} /> : null}
    </div>
  );
}

function Act({ name, issuer, act }: { name: string; issuer: Issuer; act: () => void }) {
  return (
    <button type="button" className="button small" aria-label={`${name} ${issuer.name}`} onClick={act}>
      {name}
    </button>
  );
}

function describeSignIn(issuer: Issuer): ReactNode {
  if (issuer["is-disabled"]) return <span className="tag bad">disabled</span>;
  return issuer["web-client-id"] ? (
    <span className="breaks">
      {issuer.label ? `${issuer.label}, as ` : "as "}
      <span className="mono">{issuer["web-client-id"]}</span>
    </span>
  ) : null;
}

function describeClaims(issuer: Issuer): string {
  const claims = { name: issuer["subject-claim"], groups: issuer["group-claim"], scopes: issuer["scope-claim"] };
  return Object.entries(claims)
    .flatMap(([what, claim]) => (claim ? [`${what}: ${claim}`] : []))
    .join(", ");
}

/** Lets an issuer's tokens count no more, or again. */
function Switch({ issuer, close }: { issuer: Issuer; close: () => void }) {
  const { name, "is-disabled": isDisabled } = issuer;
  const verb = isDisabled ? "Enable" : "Disable";
  return (
    <ActDialog
      title={`${verb} ${name}`}
      verb={verb}
      isDangerous={!isDisabled}
      request={changeRequest(issuer, { "is-disabled": !isDisabled })}
      command={writeCommand(`issuer ${verb.toLowerCase()}`, FIRST_WAREHOUSE, [name])}
      close={close}
    >
      {isDisabled ? (
        <p>Its tokens count again within a second, and people can sign in there.</p>
      ) : (
        <p>Within a second its tokens end, with the sessions of who signed in there. It stays registered.</p>
      )}
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
