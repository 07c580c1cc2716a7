// Registers a user, service account, group or role.
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { FIRST_WAREHOUSE, joinName } from "../../api/address.ts";
import type { PrincipalKind } from "../../api/administration.ts";
import { ActDialog } from "../../parts/Act.tsx";
import { writeCommand } from "../../parts/command.ts";
import { ChoiceField, splitWords, TextField } from "../../parts/fields.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";

const KINDS = [
  ["service", "Service account"],
  ["user", "User"],
  ["group", "Group"],
  ["role", "Role"],
] as const;

const WHAT: Readonly<Record<PrincipalKind, string>> = {
  service: "A program that logs in with a client secret or a token. It may do nothing yet: grant it something.",
  user: "A person, with tokens of this server or of an issuer. They may do nothing yet: grant them something.",
  group: "Users and service accounts. Tokens of an issuer can name groups, too.",
  role: "Users, service accounts, groups and other roles. What a role is granted, its members have.",
};

export function CreatePrincipal({ kind: first, close }: { kind: PrincipalKind; close: () => void }) {
  const warehouse = useWarehouse();
  const navigate = useNavigate();
  const [kind, setKind] = useState(first);
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const [scopes, setScopes] = useState("grants");
  const [issuer, setIssuer] = useState("");
  const [subject, setSubject] = useState("");
  const isContainer = kind === "group" || kind === "role";
  const words = splitWords(scopes);
  const given = {
    ...(description ? { description } : {}),
    ...(isContainer || scopes === "grants" ? {} : { scopes: words }),
    ...(kind !== "role" && issuer ? { issuer, subject } : {}),
  };
  const named = kind === "role" ? {} : { issuer, subject };
  const login = { kind: kind === "user" && kind, ...named, scope: scopes === "grants" ? [] : words };
  const command = writeCommand(`${isContainer ? kind : "principal"} create`, FIRST_WAREHOUSE, [name || "NAME"], {
    ...(isContainer ? named : login),
    description,
  });
  return (
    <ActDialog
      title="Register"
      verb="Register"
      isReady={name.trim() !== "" && (issuer === "") === (subject === "")}
      request={{
        method: "POST",
        path: "/management/v1/principals",
        warehouse: FIRST_WAREHOUSE,
        body: { name, kind, ...given },
      }}
      command={command}
      places={{ scopes: /scope/, issuer: /issuer|subject/, name: /name|already|called/ }}
      close={close}
      done={() =>
        void navigate({ to: "/w/$warehouse/people/$principal", params: { warehouse, principal: joinName([name]) } })
      }
    >
      <ChoiceField name="Kind" value={kind} options={KINDS} change={setKind} hint={WHAT[kind]} />
      <TextField
        name="Name"
        hint="One that no other principal has."
        value={name}
        change={setName}
        at="name"
        isFirst
        isRequired
      />
      <TextField name="Description" value={description} change={setDescription} />
      {isContainer ? null : (
        <TextField
          name="Scopes"
          hint="All that its tokens can have. grants: what it is granted; *: everything."
          value={scopes}
          change={setScopes}
          at="scopes"
          isMono
        />
      )}
      {kind === "role" ? null : (
        <details>
          <summary>Tokens of an issuer</summary>
          <div className="row top">
            <TextField name="URL of the issuer" value={issuer} change={setIssuer} at="issuer" isMono />
            <TextField
              name={kind === "group" ? "Value in its claim of groups" : "Subject in its tokens"}
              value={subject}
              change={setSubject}
              isMono
            />
          </div>
        </details>
      )}
    </ActDialog>
  );
}
