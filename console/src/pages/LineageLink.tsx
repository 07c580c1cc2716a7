import { Link } from "@tanstack/react-router";
import { Waypoints } from "lucide-react";
import type { Identifier } from "../api/address.ts";

export function LineageLink({ warehouse, of }: { warehouse: string; of: Identifier }) {
  return (
    <Link
      className="button"
      to="/w/$warehouse/lineage"
      params={{ warehouse }}
      search={{ node: [...of.namespace, of.name].join(".") }}
    >
      <Waypoints className="icon" aria-hidden /> Lineage
    </Link>
  );
}
