import { Waypoints } from "lucide-react";
import { FIRST_WAREHOUSE, type Identifier, serverUrl } from "../api/address.ts";

/** To the page of lineage, which shows the first warehouse. */
export function LineageLink({ warehouse, of }: { warehouse: string; of: Identifier }) {
  if (warehouse !== FIRST_WAREHOUSE) return null;
  const query = new URLSearchParams({ node: [...of.namespace, of.name].join(".") });
  return (
    <a className="button" href={`${serverUrl}ui/lineage?${query}`}>
      <Waypoints className="icon" aria-hidden /> Lineage
    </a>
  );
}
