// All addresses of the console. Pages come when they are first opened.
import { useQueryClient } from "@tanstack/react-query";
import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Link,
  redirect,
  useRouter,
} from "@tanstack/react-router";
import { basePath, FIRST_WAREHOUSE } from "./api/address.ts";
import { PARAMETERS, type Search as LineageSearch } from "./pages/lineage/address.ts";
import { Head } from "./parts/Card.tsx";
import { loadPart } from "./parts/loadPart.ts";
import { Trouble, Waiting } from "./parts/Notice.tsx";
import { Frame } from "./shell/Frame.tsx";

const root = createRootRoute({ component: Frame, notFoundComponent: NotFound });

const entrance = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/w/$warehouse", params: { warehouse: FIRST_WAREHOUSE }, replace: true });
  },
});

const warehouse = createRoute({ getParentRoute: () => root, path: "/w/$warehouse" });

const home = createRoute({
  getParentRoute: () => warehouse,
  path: "/",
  component: lazyRouteComponent(() => loadPart(() => import("./pages/Home.tsx")), "Home"),
});

const tables = createRoute({
  getParentRoute: () => warehouse,
  path: "/tables",
  validateSearch: (search): { in?: string; new?: string; find?: string } => textsOf(search, ["in", "new", "find"]),
  component: lazyRouteComponent(() => loadPart(() => import("./pages/Tables.tsx")), "Tables"),
});

export const TABLE_PAGES = [
  "schema",
  "data",
  "snapshots",
  "files",
  "changes",
  "loads",
  "properties",
  "history",
] as const;
export type TablePage = (typeof TABLE_PAGES)[number];

/** What an address says of one of these pages. */
const TABLE_TEXTS = ["from", "to", "where", "find", "state", "grows", "key"] as const;

const table = createRoute({
  getParentRoute: () => warehouse,
  path: "/tables/$table",
  validateSearch: (search): { page?: TablePage } & { [N in (typeof TABLE_TEXTS)[number]]?: string } => {
    const { page, ...rest } = textsOf(search, ["page", ...TABLE_TEXTS]);
    const known = TABLE_PAGES.find((one) => one === page);
    return known ? { page: known, ...rest } : rest;
  },
  component: lazyRouteComponent(() => loadPart(() => import("./pages/table/Table.tsx")), "Table"),
});

const view = createRoute({
  getParentRoute: () => warehouse,
  path: "/views/$view",
  component: lazyRouteComponent(() => loadPart(() => import("./pages/View.tsx")), "View"),
});

const SQL_TEXTS = ["q", "limit", "show", "along", "value"] as const;

const sql = createRoute({
  getParentRoute: () => warehouse,
  path: "/sql",
  validateSearch: (search): { [N in (typeof SQL_TEXTS)[number]]?: string } => textsOf(search, SQL_TEXTS),
  component: lazyRouteComponent(() => loadPart(() => import("./pages/sql/Sql.tsx")), "Sql"),
});

const history = createRoute({
  getParentRoute: () => warehouse,
  path: "/history",
  validateSearch: (search): { kind?: string; source?: string; principal?: string } =>
    textsOf(search, ["kind", "source", "principal"]),
  component: lazyRouteComponent(() => loadPart(() => import("./pages/History.tsx")), "History"),
});

const dropped = createRoute({
  getParentRoute: () => warehouse,
  path: "/dropped",
  component: lazyRouteComponent(() => loadPart(() => import("./pages/Dropped.tsx")), "Dropped"),
});

const warehouses = createRoute({
  getParentRoute: () => warehouse,
  path: "/warehouses",
  component: lazyRouteComponent(() => loadPart(() => import("./pages/admin/Warehouses.tsx")), "Warehouses"),
});

const oneWarehouse = createRoute({
  getParentRoute: () => warehouse,
  path: "/warehouses/$name",
  component: lazyRouteComponent(() => loadPart(() => import("./pages/admin/OneWarehouse.tsx")), "OneWarehouse"),
});

export const PRINCIPAL_KINDS = ["user", "service", "group", "role"] as const;

const people = createRoute({
  getParentRoute: () => warehouse,
  path: "/people",
  validateSearch: (search): { kind?: (typeof PRINCIPAL_KINDS)[number]; find?: string } => {
    const kind = PRINCIPAL_KINDS.find((one) => one === search["kind"]);
    return { ...(kind ? { kind } : {}), ...textsOf(search, ["find"]) };
  },
  component: lazyRouteComponent(() => loadPart(() => import("./pages/admin/People.tsx")), "People"),
});

const onePrincipal = createRoute({
  getParentRoute: () => warehouse,
  path: "/people/$principal",
  component: lazyRouteComponent(() => loadPart(() => import("./pages/admin/OnePrincipal.tsx")), "OnePrincipal"),
});

const issuers = createRoute({
  getParentRoute: () => warehouse,
  path: "/issuers",
  component: lazyRouteComponent(() => loadPart(() => import("./pages/admin/Issuers.tsx")), "Issuers"),
});

const grants = createRoute({
  getParentRoute: () => warehouse,
  path: "/grants",
  validateSearch: (search): { principal?: string; on?: string } => textsOf(search, ["principal", "on"]),
  component: lazyRouteComponent(() => loadPart(() => import("./pages/admin/Grants.tsx")), "Grants"),
});

const why = createRoute({
  getParentRoute: () => warehouse,
  path: "/why",
  validateSearch: (search): { principal?: string; action?: string; on?: string } =>
    textsOf(search, ["principal", "action", "on"]),
  component: lazyRouteComponent(() => loadPart(() => import("./pages/admin/Why.tsx")), "Why"),
});

const policies = createRoute({
  getParentRoute: () => warehouse,
  path: "/policies",
  validateSearch: (search): { on?: string; who?: string } => textsOf(search, ["on", "who"]),
  component: lazyRouteComponent(() => loadPart(() => import("./pages/admin/Policies.tsx")), "Policies"),
});

const audit = createRoute({
  getParentRoute: () => warehouse,
  path: "/audit",
  validateSearch: (
    search,
  ): { principal?: string; operation?: string; resource?: string; result?: string; hours?: string } =>
    textsOf(search, ["principal", "operation", "resource", "result", "hours"]),
  component: lazyRouteComponent(() => loadPart(() => import("./pages/admin/Audit.tsx")), "Audit"),
});

const upkeep = createRoute({
  getParentRoute: () => warehouse,
  path: "/upkeep",
  validateSearch: (search): { result?: string; show?: string } => textsOf(search, ["result", "show"]),
  component: lazyRouteComponent(() => loadPart(() => import("./pages/admin/Upkeep.tsx")), "Upkeep"),
});

const doctor = createRoute({
  getParentRoute: () => warehouse,
  path: "/doctor",
  component: lazyRouteComponent(() => loadPart(() => import("./pages/admin/Doctor.tsx")), "Doctor"),
});

const lineage = createRoute({
  getParentRoute: () => warehouse,
  path: "/lineage",
  validateSearch: (search): LineageSearch => textsOf(search, PARAMETERS),
  component: lazyRouteComponent(() => loadPart(() => import("./pages/lineage/Lineage.tsx")), "Lineage"),
});

const settings = createRoute({
  getParentRoute: () => warehouse,
  path: "/settings",
  validateSearch: (search): { find?: string; show?: string } => textsOf(search, ["find", "show"]),
  component: lazyRouteComponent(() => loadPart(() => import("./pages/admin/Settings.tsx")), "Settings"),
});

const api = createRoute({
  getParentRoute: () => warehouse,
  path: "/api",
  validateSearch: (search): { route?: string; find?: string } => textsOf(search, ["route", "find"]),
  component: lazyRouteComponent(() => loadPart(() => import("./pages/admin/ApiReference.tsx")), "ApiReference"),
});

const you = createRoute({
  getParentRoute: () => warehouse,
  path: "/you",
  component: lazyRouteComponent(() => loadPart(() => import("./pages/admin/You.tsx")), "You"),
});

const administration = [
  warehouses,
  oneWarehouse,
  people,
  onePrincipal,
  issuers,
  grants,
  why,
  policies,
  audit,
  upkeep,
  doctor,
  settings,
  api,
  you,
] as const;

/** The members of an address that are texts. */
function textsOf<K extends string>(search: Record<string, unknown>, names: readonly K[]): { [N in K]?: string } {
  const found = names.flatMap((name) => (typeof search[name] === "string" ? [[name, search[name]] as const] : []));
  return Object.fromEntries(found) as { [N in K]?: string };
}

/** Addresses are read and shared: `?in=sales`, and not JSON. */
function writeSearch(search: Record<string, unknown>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(search)) if (typeof value === "string") query.set(name, value);
  return query.size > 0 ? `?${query}` : "";
}

export const router = createRouter({
  routeTree: root.addChildren([
    entrance,
    warehouse.addChildren([home, tables, table, view, sql, history, dropped, lineage, ...administration]),
  ]),
  basepath: basePath,
  defaultPreload: "intent",
  defaultPendingComponent: () => <Waiting />,
  defaultErrorComponent: PageTrouble,
  parseSearch: (text) => Object.fromEntries(new URLSearchParams(text)),
  stringifySearch: writeSearch,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}

function NotFound() {
  return (
    <div className="body">
      <title>Not found · duckicelake</title>
      <Head title="There is no such page" />
      <p className="quiet">The address may be of another version of the console, or mistyped.</p>
      <p>
        <Link to="/">Home</Link>
      </p>
    </div>
  );
}

/** A page that failed. One whose file is gone belongs to an older version of the server, unless that is down. */
function PageTrouble({ error }: { error: unknown }) {
  const { invalidate } = useRouter();
  const client = useQueryClient();
  // What the page can't show is forgotten: it is asked for again, and not shown as it was.
  const retry = async () => {
    await client.resetQueries();
    await invalidate();
  };
  const isOld = error instanceof TypeError && /import|module/i.test(error.message);
  return (
    <div className="body">
      {isOld ? (
        <div className="notice" role="alert">
          <strong>This page could not be loaded</strong>
          <p>The server has a new version of it, or doesn’t answer.</p>
          <button type="button" className="button primary" onClick={() => location.reload()}>
            Load it
          </button>
        </div>
      ) : (
        <Trouble error={error} retry={() => void retry()} />
      )}
    </div>
  );
}
