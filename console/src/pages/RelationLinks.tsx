// Where else a table or view is shown: its rows by SQL, and what it is made of.
import { Link } from "@tanstack/react-router";
import { SquareTerminal, Waypoints } from "lucide-react";
import { type Identifier, quoteSql } from "../api/address.ts";

export function RelationLinks({ warehouse, of }: { warehouse: string; of: Identifier }) {
  const levels = [...of.namespace, of.name];
  return (
    <>
      <Link className="button" to="/w/$warehouse/sql" params={{ warehouse }} search={{ q: `FROM ${quoteSql(levels)}` }}>
        <SquareTerminal className="icon" aria-hidden /> Query
      </Link>
      <Link className="button" to="/w/$warehouse/lineage" params={{ warehouse }} search={{ node: levels.join(".") }}>
        <Waypoints className="icon" aria-hidden /> Lineage
      </Link>
    </>
  );
}
