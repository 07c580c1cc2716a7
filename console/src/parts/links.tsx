// Links to tables, views and namespaces.
import { Link, useParams } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { FIRST_WAREHOUSE, type Identifier, joinIdentifier, joinName } from "../api/address.ts";
import type { Crumb } from "./Card.tsx";

export function TableLink({
  warehouse,
  table,
  children,
}: {
  warehouse: string;
  table: Identifier;
  children?: ReactNode;
}) {
  return (
    <Link to="/w/$warehouse/tables/$table" params={{ warehouse, table: joinIdentifier(table) }}>
      {children ?? [...table.namespace, table.name].join(".")}
    </Link>
  );
}

export function NamespaceLink({
  warehouse,
  namespace,
  children,
}: {
  warehouse: string;
  namespace: readonly string[];
  children: ReactNode;
}) {
  return (
    <Link to="/w/$warehouse/tables" params={{ warehouse }} search={{ in: joinName(namespace) }}>
      {children}
    </Link>
  );
}

/** The way to a namespace, from the warehouse down. */
export function crumbsOf(warehouse: string, namespace: readonly string[]): readonly Crumb[] {
  const all = {
    key: "",
    link: (
      <Link to="/w/$warehouse/tables" params={{ warehouse }}>
        {warehouse}
      </Link>
    ),
  };
  const levels = namespace.map((level, place) => ({
    key: String(place),
    link: (
      <NamespaceLink warehouse={warehouse} namespace={namespace.slice(0, place + 1)}>
        {level}
      </NamespaceLink>
    ),
  }));
  return [all, ...levels];
}

/** A user, service account, group or role. */
export function PrincipalLink({ name }: { name: string }) {
  const { warehouse = FIRST_WAREHOUSE } = useParams({ strict: false });
  return (
    <Link to="/w/$warehouse/people/$principal" params={{ warehouse, principal: joinName([name]) }} className="breaks">
      {name}
    </Link>
  );
}
