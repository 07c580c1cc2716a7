// A user, service account, group or role: what it is in, who is in it, its secrets, and what can be done to it.
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { FIRST_WAREHOUSE, quoteShell, splitName } from "../../api/address.ts";
import { type Principal, principalQuery } from "../../api/administration.ts";
import { ActDialog } from "../../parts/Act.tsx";
import { writeCommand } from "../../parts/command.ts";
import { Card, Head, LINE } from "../../parts/Card.tsx";
import { Facts } from "../../parts/Facts.tsx";
import { splitWords, SureField, TextField } from "../../parts/fields.tsx";
import { PrincipalLink } from "../../parts/links.tsx";
import { Menu } from "../../parts/Menu.tsx";
import { Loaded } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";
import { Join, Members } from "./Members.tsx";
import { KindTag } from "./People.tsx";
import { PrincipalSecrets } from "./Secrets.tsx";

interface ActProps {
  readonly principal: Principal;
  readonly close: () => void;
}

export function OnePrincipal() {
  const warehouse = useWarehouse();
  const { principal } = useParams({ from: "/w/$warehouse/people/$principal" });
  const name = splitName(principal)[0] ?? "";
  const query = useQuery(principalQuery(name));
  const all = {
    key: "all",
    link: (
      <Link to="/w/$warehouse/people" params={{ warehouse }}>
        People
      </Link>
    ),
  };
  return (
    <div className="body">
      <title>{`${name} · People · duckicelake`}</title>
      <Head crumbs={[all]} title={name} comment={query.data?.description ?? LINE}>
        <Link to="/w/$warehouse/grants" params={{ warehouse }} search={{ principal: name }} className="button">
          Grants
        </Link>
        <Link to="/w/$warehouse/why" params={{ warehouse }} search={{ principal: name }} className="button">
          Why may it?
        </Link>
        {query.data ? <Acts principal={query.data} /> : null}
      </Head>
      <Loaded query={query}>
        {(found) => (
          <>
            <div className="columns">
              <About principal={found} />
              <Containers name={name} containers={found.containers} />
            </div>
            {found.kind === "group" || found.kind === "role" ? (
              <Members name={name} kind={found.kind} />
            ) : (
              <PrincipalSecrets name={name} kind={found.kind} />
            )}
          </>
        )}
      </Loaded>
    </div>
  );
}

function About({ principal: found }: { principal: Principal }) {
  const isContainer = found.kind === "group" || found.kind === "role";
  return (
    <Card title="What it is">
      <Facts
        of={[
          ["Kind", <KindTag kind={found.kind} />],
          [
            "State",
            found["is-disabled"] ? (
              <span className="tag bad">disabled</span>
            ) : (
              <span className="tag good">enabled</span>
            ),
          ],
          ...(isContainer ? [] : [["Scopes", <span className="mono">{found.scopes.join(" ")}</span>] as const]),
          ...(found.issuer
            ? ([
                ["Issuer", <span className="mono">{found.issuer}</span>],
                ["Subject", <span className="mono">{found.subject}</span>],
              ] as const)
            : []),
          ["Registered", <Time at={found.created} isFull />],
        ]}
      />
    </Card>
  );
}

function Containers({ name, containers }: { name: string; containers: readonly string[] }) {
  const [open, setOpen] = useState<"join" | string | null>(null);
  return (
    <Card
      title="Groups and roles"
      aside={
        <button type="button" className="button small" onClick={() => setOpen("join")}>
          Put it into another
        </button>
      }
    >
      {containers.length === 0 ? (
        <p className="inside quiet">It is in none by itself. Groups that tokens name aren&rsquo;t listed here.</p>
      ) : (
        <ul className="inside tags">
          {containers.map((container) => (
            <li key={container} className="tag accent">
              <PrincipalLink name={container} />
            </li>
          ))}
        </ul>
      )}
      {open === "join" ? <Join member={name} close={() => setOpen(null)} /> : null}
    </Card>
  );
}

function Acts({ principal }: { principal: Principal }) {
  const [open, setOpen] = useState<"edit" | "switch" | "drop" | null>(null);
  const close = () => setOpen(null);
  return (
    <>
      <Menu
        name="Change"
        items={[
          { name: "Edit", choose: () => setOpen("edit") },
          { name: principal["is-disabled"] ? "Enable" : "Disable", choose: () => setOpen("switch") },
          { name: "Drop", isDangerous: true, choose: () => setOpen("drop") },
        ]}
      />
      {open === "edit" ? <Edit principal={principal} close={close} /> : null}
      {open === "switch" ? <Switch principal={principal} close={close} /> : null}
      {open === "drop" ? <Drop principal={principal} close={close} /> : null}
    </>
  );
}

function requestOf({ name }: Principal, method: "POST" | "DELETE", body?: unknown) {
  return {
    method,
    path: "/management/v1/principals/{principal}",
    warehouse: FIRST_WAREHOUSE,
    values: { principal: name },
    body,
  } as const;
}

/** As the file of `duckicelake apply` has it: no other command changes a registration. */
function writeApply({ name, kind }: Principal, changes: Readonly<Record<string, unknown>>): string {
  const section = kind === "group" || kind === "role" ? `${kind}s` : "principals";
  const entry = section === "principals" ? { name, kind, ...changes } : { name, ...changes };
  const file = quoteShell(JSON.stringify({ [section]: [entry] }));
  return `echo ${file} > change.yaml && ${writeCommand("apply", FIRST_WAREHOUSE, ["change.yaml"])}`;
}

function Edit({ principal, close }: ActProps) {
  const isContainer = principal.kind === "group" || principal.kind === "role";
  const [description, setDescription] = useState(principal.description);
  const [scopes, setScopes] = useState(principal.scopes.join(" "));
  const words = splitWords(scopes);
  const changes = {
    ...(description === principal.description ? {} : { description }),
    ...(isContainer || scopes === principal.scopes.join(" ") ? {} : { scopes: words }),
  };
  return (
    <ActDialog
      title={`Edit ${principal.name}`}
      verb="Save"
      isReady={Object.keys(changes).length > 0}
      request={requestOf(principal, "POST", changes)}
      command={writeApply(principal, changes)}
      places={{ scopes: /scope/, description: /description/ }}
      close={close}
    >
      <TextField name="Description" value={description} change={setDescription} at="description" isFirst />
      {isContainer ? null : (
        <TextField
          name="Scopes"
          hint="All that its tokens can have, at once also those that it has already."
          value={scopes}
          change={setScopes}
          at="scopes"
          isMono
        />
      )}
    </ActDialog>
  );
}

function Switch({ principal, close }: ActProps) {
  const isDisabled = principal["is-disabled"];
  const isContainer = principal.kind === "group" || principal.kind === "role";
  const verb = isDisabled ? "Enable" : "Disable";
  return (
    <ActDialog
      title={`${verb} ${principal.name}`}
      verb={verb}
      isDangerous={!isDisabled}
      request={requestOf(principal, "POST", { "is-disabled": !isDisabled })}
      command={writeCommand(`principal ${verb.toLowerCase()}`, FIRST_WAREHOUSE, [principal.name])}
      close={close}
    >
      <p>
        {isDisabled
          ? "It may do again what it was granted, and its secrets work again."
          : isContainer
            ? "It passes nothing on to its members any more, within a second. Grants and members stay."
            : "It may do nothing any more, within a second. Its grants and secrets stay, for the day it is enabled again."}
      </p>
    </ActDialog>
  );
}

function Drop({ principal, close }: ActProps) {
  const warehouse = useWarehouse();
  const navigate = useNavigate();
  const [typed, setTyped] = useState("");
  return (
    <ActDialog
      title={`Drop ${principal.name}`}
      verb="Drop"
      isDangerous
      isReady={typed === principal.name}
      request={requestOf(principal, "DELETE")}
      command={writeCommand("principal drop", FIRST_WAREHOUSE, [principal.name])}
      close={close}
      done={() => void navigate({ to: "/w/$warehouse/people", params: { warehouse } })}
    >
      <p>
        It goes with its secrets, memberships and grants in all warehouses; its tokens end within a second. This
        can&rsquo;t be taken back. To keep what it was granted, disable it instead.
      </p>
      <SureField word={principal.name} value={typed} change={setTyped} />
    </ActDialog>
  );
}
