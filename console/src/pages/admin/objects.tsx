// What a grant or policy is on, and for whom: as links, and as fields that offer what there is.
import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Eye, Folder, Table2 } from "lucide-react";
import { useDeferredValue } from "react";
import { joinIdentifier } from "../../api/address.ts";
import { principalsQuery } from "../../api/administration.ts";
import { type GovernedObject, readObject, WHOLE_WAREHOUSE, writeObject } from "../../api/objects.ts";
import { callerQuery, findQuery, namespacesQuery } from "../../api/queries.ts";
import { TextField } from "../../parts/fields.tsx";
import { NamespaceLink, PrincipalLink, TableLink } from "../../parts/links.tsx";

export function ObjectLink({ warehouse, object }: { warehouse: string; object: GovernedObject }) {
  const { kind, namespace, name } = object;
  if (kind === "warehouse") return <span className="nowrap">the whole warehouse</span>;
  const text = [...namespace, ...(name ? [name] : [])].join(".");
  const Icon = { namespace: Folder, table: Table2, view: Eye }[kind];
  return (
    <span className="breaks">
      <Icon className={`icon kind-${kind}`} aria-hidden /> <span className="hidden-text">{kind} </span>
      {kind === "namespace" ? (
        <NamespaceLink warehouse={warehouse} namespace={namespace}>
          {text}
        </NamespaceLink>
      ) : kind === "table" ? (
        <TableLink warehouse={warehouse} table={{ namespace, name }} />
      ) : (
        <Link to="/w/$warehouse/views/$view" params={{ warehouse, view: joinIdentifier({ namespace, name }) }}>
          {text}
        </Link>
      )}
    </span>
  );
}

/** A name; a link for those who may look the principal up. */
export function PrincipalName({ name, isAdmin }: { name: string; isAdmin: boolean }) {
  return isAdmin ? <PrincipalLink name={name} /> : <span className="breaks">{name}</span>;
}

export function usePrincipalNames(warehouse: string): readonly string[] {
  const { data: caller } = useQuery(callerQuery(warehouse));
  const { data } = useInfiniteQuery({ ...principalsQuery(), enabled: caller?.["is-admin"] ?? false });
  return data?.pages.flatMap((page) => page.principals.map(({ name }) => name)) ?? [];
}

export function useObjectNames(warehouse: string, typed: string, kinds: readonly string[]): readonly string[] {
  const part = useDeferredValue(typed.replace(/^\w+:/, "").toLowerCase());
  const { data: found = [] } = useQuery({ ...findQuery(warehouse, part), placeholderData: keepPreviousData });
  const { data: spaces } = useInfiniteQuery(namespacesQuery(warehouse, []));
  const namespaces = spaces?.pages.flatMap((page) => page.namespaces) ?? [];
  const all = [
    WHOLE_WAREHOUSE,
    ...namespaces.map((namespace) => ({ kind: "namespace" as const, namespace, name: "" })),
    ...found.flatMap((one) => (one.kind === "namespace" ? [] : [{ ...one, name: one.name ?? "" }])),
  ];
  return all.filter(({ kind }) => kinds.includes(kind)).map(writeObject);
}

const ALL_KINDS = ["warehouse", "namespace", "table", "view"];

export function ObjectField({
  warehouse,
  name = "On",
  value,
  change,
  kinds = ALL_KINDS,
  ...kind
}: {
  warehouse: string;
  name?: string;
  value: string;
  change: (value: string) => void;
  kinds?: readonly string[];
  at?: string;
  isFirst?: boolean;
  isRequired?: boolean;
}) {
  const offered = useObjectNames(warehouse, value, kinds);
  const isWrong = value !== "" && !kinds.includes(readObject(value)?.kind ?? "");
  const forms = kinds.map((one) => ({ warehouse: one, namespace: `${one}:sales` })[one] ?? `${one}:sales.orders`);
  return (
    <TextField
      name={name}
      value={value}
      change={change}
      offered={offered}
      hint={isWrong ? `Write it as ${forms.join(", ")}.` : undefined}
      placeholder={forms.find((form) => form.startsWith("table")) ?? ""}
      isMono
      {...kind}
    />
  );
}
