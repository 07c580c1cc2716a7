// What is granted in a warehouse: all of it, what a principal has, or what holds for an object.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useMemo, useState } from "react";
import { type FoundGrant, foundGrantsQuery, grantsQuery } from "../../api/governance.ts";
import { type GovernedObject, type ObjectKind, readObject, writeObject } from "../../api/objects.ts";
import { callerQuery } from "../../api/queries.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { TextField } from "../../parts/fields.tsx";
import { type Column, LongTable } from "../../parts/LongTable.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";
import { Give, Take } from "./grantActs.tsx";
import { ObjectField, ObjectLink, PrincipalName, usePrincipalNames } from "./objects.tsx";
import { KindTag } from "./People.tsx";

/** Privileges of one principal on one object, by one way. */
export interface GrantRow {
  readonly key: string;
  readonly principal: string;
  readonly principalKind: string;
  readonly object: GovernedObject | null;
  readonly kind: string;
  readonly privileges: readonly string[];
  readonly path: readonly string[];
  readonly isFromAbove: boolean;
  readonly grantedBy: string;
  readonly grantedAt: string;
}

export function Grants() {
  const warehouse = useWarehouse();
  const { principal, on } = useSearch({ from: "/w/$warehouse/grants" });
  const { data: caller } = useQuery(callerQuery(warehouse));
  const object = on ? readObject(on) : null;
  const [isGiving, setGiving] = useState(false);
  return (
    <div className="body">
      <title>Grants · duckicelake</title>
      <Head title="Grants" comment={`Who may do what in ${warehouse}, by itself and by groups and roles.`}>
        {caller?.["is-admin"] ? (
          <Link
            to="/w/$warehouse/why"
            params={{ warehouse }}
            search={{ ...(principal ? { principal } : {}), ...(on ? { on } : {}) }}
            className="button"
          >
            Why may she?
          </Link>
        ) : null}
        <button type="button" className="button primary" onClick={() => setGiving(true)}>
          Grant
        </button>
      </Head>
      {caller && !caller["grants-on"] ? (
        <p className="banner">
          Grants are off in this warehouse: the scopes of tokens decide alone. What is granted counts once they are on.
        </p>
      ) : null}
      <Filter key={`${principal} ${on}`} principal={principal ?? ""} on={on ?? ""} />
      <Card>
        {principal || object ? (
          <Found principal={principal} object={object} />
        ) : on ? (
          <Empty title="That is no object">Write it as namespace:sales, table:sales.orders or view:sales.totals.</Empty>
        ) : (
          <All />
        )}
      </Card>
      {isGiving ? (
        <Give warehouse={warehouse} principal={principal ?? ""} on={on ?? ""} close={() => setGiving(false)} />
      ) : null}
    </div>
  );
}

function Filter({ principal: first, on: firstOn }: { principal: string; on: string }) {
  const warehouse = useWarehouse();
  const navigate = useNavigate();
  const [principal, setPrincipal] = useState(first);
  const [on, setOn] = useState(firstOn);
  const offered = usePrincipalNames(warehouse);
  const show = (search: { principal?: string; on?: string }) =>
    void navigate({ to: "/w/$warehouse/grants", params: { warehouse }, search });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    show({ ...(principal ? { principal } : {}), ...(on ? { on } : {}) });
  };
  return (
    <form className="row ends" onSubmit={submit}>
      <TextField name="Of whom" value={principal} change={setPrincipal} offered={offered} />
      <ObjectField warehouse={warehouse} name="On what" value={on} change={setOn} />
      <button className="button">Show</button>
      {first || firstOn ? (
        <button type="button" className="button plain" onClick={() => show({})}>
          All
        </button>
      ) : null}
    </form>
  );
}

function All() {
  const query = useInfiniteQuery(grantsQuery(useWarehouse()));
  const rows = useMemo(() => {
    const all = query.data?.pages.flatMap((page) => page.grants) ?? [];
    return groupGrants(all.map((grant) => ({ ...grant, path: [grant.principal], isFromAbove: false })));
  }, [query.data]);
  return (
    <Loaded query={query}>
      {() => (
        <GrantTable
          rows={rows}
          reachEnd={() => {
            if (query.hasNextPage && !query.isFetchingNextPage) void query.fetchNextPage();
          }}
        />
      )}
    </Loaded>
  );
}

function Found({ principal, object }: { principal: string | undefined; object: GovernedObject | null }) {
  const warehouse = useWarehouse();
  const caller = useQuery(callerQuery(warehouse));
  const query = useQuery(foundGrantsQuery(warehouse, caller.data, { principal, object }));
  return (
    <Loaded query={caller}>
      {() => <Loaded query={query}>{(found) => <GrantTable rows={groupGrants(found)} isWayShown />}</Loaded>}
    </Loaded>
  );
}

function groupGrants(grants: readonly FoundGrant[]): readonly GrantRow[] {
  const rows = new Map<string, GrantRow>();
  for (const grant of grants) {
    const key = JSON.stringify([grant.path, grant.principal, grant.kind, grant.id]);
    const known = rows.get(key);
    rows.set(key, {
      key,
      principal: grant.principal,
      principalKind: grant["principal-kind"],
      kind: grant.kind,
      object: findObject(grant),
      privileges: [...(known?.privileges ?? []), grant.privilege],
      path: grant.path,
      isFromAbove: grant.isFromAbove,
      grantedBy: grant["granted-by"],
      grantedAt: grant["granted-at"],
    });
  }
  return [...rows.values()];
}

/** Null: it was dropped. */
function findObject({ kind, namespace, name }: FoundGrant): GovernedObject | null {
  if (kind !== "warehouse" && !namespace) return null;
  return { kind: kind as ObjectKind, namespace: namespace ?? [], name: name ?? "" };
}

function GrantTable({
  rows,
  isWayShown = false,
  reachEnd,
}: {
  rows: readonly GrantRow[];
  isWayShown?: boolean;
  reachEnd?: () => void;
}) {
  const warehouse = useWarehouse();
  const { data: caller } = useQuery(callerQuery(warehouse));
  const [taken, setTaken] = useState<GrantRow | null>(null);
  const isAdmin = caller?.["is-admin"] ?? false;
  if (rows.length === 0) {
    return (
      <Empty title="Nothing is granted here">Or nothing that you may see: your own grants, and what you manage.</Empty>
    );
  }
  const columns: readonly Column<GrantRow>[] = [
    {
      name: "Who",
      show: ({ principal, principalKind }) => (
        <span className="row tight">
          <PrincipalName name={principal} isAdmin={isAdmin} /> <KindTag kind={principalKind} />
        </span>
      ),
    },
    {
      name: "On what",
      show: ({ object, kind }) =>
        object ? (
          <ObjectLink warehouse={warehouse} object={object} />
        ) : (
          <span className="quiet">a {kind} that was dropped</span>
        ),
    },
    { name: "Privileges", show: ({ privileges }) => <Privileges of={privileges} /> },
    ...(isWayShown ? [{ name: "How it counts", show: (row: GrantRow) => <Way row={row} /> }] : []),
    {
      name: "Granted",
      show: ({ grantedBy, grantedAt }) => (
        <span className="small quiet">
          <Time at={grantedAt} /> by {grantedBy}
        </span>
      ),
    },
    {
      name: "Take away",
      kind: "hidden",
      show: (row) =>
        row.object ? (
          <button
            type="button"
            className="button small"
            aria-label={`Revoke what ${row.principal} has on ${writeObject(row.object)}`}
            onClick={() => setTaken(row)}
          >
            Revoke
          </button>
        ) : null,
    },
  ];
  return (
    <>
      <LongTable
        name="Grants"
        rows={rows}
        columns={columns}
        keyOf={({ key }) => key}
        {...(reachEnd ? { reachEnd } : {})}
      />
      {taken ? <Take warehouse={warehouse} row={taken} close={() => setTaken(null)} /> : null}
    </>
  );
}

export function Privileges({ of }: { of: readonly string[] }) {
  return (
    <span className="tags">
      {of.map((privilege) => (
        <span key={privilege} className={privilege === "ownership" ? "tag accent" : "tag"}>
          {privilege}
        </span>
      ))}
    </span>
  );
}

function Way({ row: { path, isFromAbove } }: { row: GrantRow }) {
  if (path.length === 1 && !isFromAbove) return <span>itself</span>;
  return (
    <span className="tags">
      {path.length > 1 ? <span className="tag warn">by {path.slice(1).join(" → ")}</span> : null}
      {isFromAbove ? <span className="tag warn">from above</span> : null}
    </span>
  );
}
