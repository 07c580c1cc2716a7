// Below what isn't there: where it may be, and the nearest page that is there.
import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { FIRST_WAREHOUSE, splitIdentifier, splitName } from "../api/address.ts";
import type { ApiError } from "../api/client.ts";
import { readObject } from "../api/objects.ts";
import { namespaceQuery } from "../api/queries.ts";
import { NamespaceLink } from "./links.tsx";

interface Place {
  readonly namespace: readonly string[] | null;
  readonly list: "people" | "warehouses" | null;
}

/** What the address of a page names. Below a namespace: the namespace. */
function usePlace(error: ApiError): Place {
  const { table, view, principal, name } = useParams({ strict: false });
  const { in: inside, on, principal: asked } = useSearch({ strict: false });
  const identifier = table ?? view;
  const named = [
    identifier === undefined ? null : splitIdentifier(identifier).namespace,
    inside === undefined ? null : splitName(inside).slice(0, -1),
    on === undefined ? null : (readObject(on)?.namespace ?? null),
  ];
  const isPrincipal = principal !== undefined || (asked !== undefined && /principal/.test(error.message));
  return {
    namespace: named.find((one) => one !== null) ?? null,
    list: isPrincipal ? "people" : name === undefined ? null : "warehouses",
  };
}

export function WayOn({ error }: { error: ApiError }) {
  const { warehouse = FIRST_WAREHOUSE } = useParams({ strict: false });
  const { namespace, list } = usePlace(error);
  if (list === "people") {
    return (
      <Link to="/w/$warehouse/people" params={{ warehouse }}>
        All principals
      </Link>
    );
  }
  if (list === "warehouses") {
    return (
      <Link to="/w/$warehouse/warehouses" params={{ warehouse }}>
        All warehouses
      </Link>
    );
  }
  if (error.type === NO_WAREHOUSE) return <Link to="/">To the first warehouse</Link>;
  return (
    <>
      <p>
        It may have been renamed or dropped: look at{" "}
        <Link to="/w/$warehouse/dropped" params={{ warehouse }}>
          what can be brought back
        </Link>
        , or find it with <kbd>/</kbd> by a part of its name.
      </p>
      {namespace ? <NearestNamespace warehouse={warehouse} namespace={namespace} /> : null}
    </>
  );
}

const NO_WAREHOUSE = "NoSuchWarehouseException";

/** A link to a namespace, or to the nearest one above it that is there. */
function NearestNamespace({ warehouse, namespace }: { warehouse: string; namespace: readonly string[] }) {
  const { isSuccess, isError } = useQuery({
    ...namespaceQuery(warehouse, namespace),
    enabled: namespace.length > 0,
    retry: false,
  });
  if (namespace.length === 0) {
    return (
      <Link to="/w/$warehouse/tables" params={{ warehouse }}>
        All namespaces
      </Link>
    );
  }
  if (isError) return <NearestNamespace warehouse={warehouse} namespace={namespace.slice(0, -1)} />;
  if (!isSuccess) return null;
  return (
    <NamespaceLink warehouse={warehouse} namespace={namespace}>
      All of {namespace.join(".")}
    </NamespaceLink>
  );
}
