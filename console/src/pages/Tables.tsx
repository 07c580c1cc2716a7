// Namespaces as a tree, and the tables and views of the one that was chosen.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { ChevronRight, Eye, Folder, Table2 } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { joinIdentifier, joinName, splitName } from "../api/address.ts";
import { namespaceQuery, namespacesQuery, tablesQuery, viewsQuery } from "../api/queries.ts";
import { useAddressPart } from "../parts/addressText.ts";
import { Card, Head, LINE } from "../parts/Card.tsx";
import { plural } from "../parts/format.ts";
import { crumbsOf, NamespaceLink } from "../parts/links.tsx";
import { Empty, Failed, Loaded, Waiting } from "../parts/Notice.tsx";
import { Properties } from "../parts/Properties.tsx";
import { NamespaceActs, NewLink, NewMenu, NewThing, StaleViews } from "./acts/namespace.tsx";
import { useWarehouse } from "../shell/Frame.tsx";

const ROW_PX = 36;

export function Tables() {
  const warehouse = useWarehouse();
  const { in: text, new: made } = useSearch({ from: "/w/$warehouse/tables" });
  const navigate = useNavigate();
  const namespace = useMemo(() => (text === undefined ? null : splitName(text)), [text]);
  return (
    <div className="body">
      <title>{`${namespace?.join(".") ?? "Tables"} · duckicelake`}</title>
      {namespace ? (
        <NamespaceHead warehouse={warehouse} namespace={namespace} />
      ) : (
        <Head title="Tables">
          <NewMenu warehouse={warehouse} inside={[]} />
        </Head>
      )}
      <NewThing
        warehouse={warehouse}
        inside={namespace ?? []}
        kind={made}
        close={() =>
          void navigate({
            to: "/w/$warehouse/tables",
            params: { warehouse },
            search: text === undefined ? {} : { in: text },
            replace: true,
          })
        }
      />
      <div className="browse">
        <section className="card tree" aria-label="Namespaces">
          <Branch warehouse={warehouse} parent={[]} chosen={namespace} />
        </section>
        <div className="stack">
          {namespace ? (
            <NamespaceContents key={text} warehouse={warehouse} namespace={namespace} />
          ) : (
            <Card>
              <Empty title="Choose a namespace">
                <p>
                  Its tables and views are shown here. <kbd>/</kbd> finds one by a part of its name.
                </p>
              </Empty>
            </Card>
          )}
        </div>
      </div>
    </div>
  );
}

function NamespaceHead({ warehouse, namespace }: { warehouse: string; namespace: readonly string[] }) {
  const { data } = useQuery(namespaceQuery(warehouse, namespace));
  const [stale, setStale] = useState<readonly (readonly string[])[]>([]);
  return (
    <Head
      crumbs={crumbsOf(warehouse, namespace.slice(0, -1))}
      title={namespace.at(-1)}
      comment={data?.properties["comment"] ?? LINE}
    >
      <NewMenu warehouse={warehouse} inside={namespace} />
      {data ? (
        <NamespaceActs warehouse={warehouse} namespace={namespace} properties={data.properties} stale={setStale} />
      ) : null}
      {stale.length > 0 ? <StaleViews warehouse={warehouse} views={stale} close={() => setStale([])} /> : null}
    </Head>
  );
}

interface BranchProps {
  readonly warehouse: string;
  readonly parent: readonly string[];
  readonly chosen: readonly string[] | null;
}

/** The namespaces directly below one. */
function Branch({ warehouse, parent, chosen }: BranchProps) {
  const query = useInfiniteQuery(namespacesQuery(warehouse, parent));
  return (
    <Loaded query={query} lines={3}>
      {({ pages }) => {
        const all = pages.flatMap((page) => page.namespaces);
        if (all.length === 0) return <p className="small quiet nothing">No namespaces below</p>;
        return (
          <ul>
            {all.map((namespace) => (
              <Node key={joinName(namespace)} warehouse={warehouse} namespace={namespace} chosen={chosen} />
            ))}
            {query.hasNextPage ? (
              <li>
                <button type="button" className="button plain small" onClick={() => void query.fetchNextPage()}>
                  More
                </button>
              </li>
            ) : null}
          </ul>
        );
      }}
    </Loaded>
  );
}

function Node({
  warehouse,
  namespace,
  chosen,
}: {
  warehouse: string;
  namespace: readonly string[];
  chosen: readonly string[] | null;
}) {
  const isAbove = chosen !== null && namespace.every((level, place) => chosen[place] === level);
  const isChosen = isAbove && chosen?.length === namespace.length;
  const [isOpen, setOpen] = useState(isAbove && !isChosen);
  useEffect(() => {
    if (isAbove && !isChosen) setOpen(true);
  }, [isAbove, isChosen]);
  const name = namespace.at(-1) ?? "";
  return (
    <li>
      <div className={isChosen ? "node chosen" : "node"}>
        <button
          type="button"
          className="toggle"
          aria-expanded={isOpen}
          aria-label={`Namespaces below ${name}`}
          onClick={() => setOpen(!isOpen)}
        >
          <ChevronRight aria-hidden />
        </button>
        <NamespaceLink warehouse={warehouse} namespace={namespace}>
          {name}
        </NamespaceLink>
      </div>
      {isOpen ? <Branch warehouse={warehouse} parent={namespace} chosen={chosen} /> : null}
    </li>
  );
}

interface Thing {
  readonly kind: "table" | "view" | "namespace";
  readonly name: string;
}

function NamespaceContents({ warehouse, namespace }: { warehouse: string; namespace: readonly string[] }) {
  const below = useInfiniteQuery(namespacesQuery(warehouse, namespace));
  const tables = useInfiniteQuery(tablesQuery(warehouse, namespace));
  const views = useInfiniteQuery(viewsQuery(warehouse, namespace));
  const { data: described } = useQuery(namespaceQuery(warehouse, namespace));
  const [part, setPart] = useAddressPart();
  const things = useMemo<readonly Thing[]>(() => {
    const all = [
      ...(below.data?.pages.flatMap((page) => page.namespaces) ?? []).map(
        (levels) => ({ kind: "namespace", name: levels.at(-1) ?? "" }) as const,
      ),
      ...(tables.data?.pages.flatMap((page) => page.identifiers) ?? []).map(
        ({ name }) => ({ kind: "table", name }) as const,
      ),
      ...(views.data?.pages.flatMap((page) => page.identifiers) ?? []).map(
        ({ name }) => ({ kind: "view", name }) as const,
      ),
    ];
    const wanted = part.trim().toLowerCase();
    return wanted ? all.filter(({ name }) => name.toLowerCase().includes(wanted)) : all;
  }, [below.data, tables.data, views.data, part]);
  const failed = [below, tables, views].find((query) => query.error && !query.data);
  const isWaiting = !below.data || !tables.data || !views.data;
  const hasMore = [below, tables, views].some((query) => query.hasNextPage);
  const loadMore = () => {
    for (const query of [below, tables, views]) {
      if (query.hasNextPage && !query.isFetchingNextPage) void query.fetchNextPage();
    }
  };
  // A part of a name is looked for in all of them, so all must be here.
  useEffect(() => {
    if (part.trim() && hasMore) loadMore();
  });
  const count = `${plural(things.length, "entry", "entries")}${hasMore ? " so far" : ""}`;
  return (
    <>
      <section className="card" aria-label="Tables and views">
        <header>
          <input
            type="search"
            className="grow"
            placeholder="Part of a name"
            aria-label="Part of a name"
            value={part}
            onChange={({ target }) => setPart(target.value)}
          />
          <span className="quiet small" role="status">
            {isWaiting ? "" : count}
          </span>
        </header>
        {failed ? (
          <Failed error={failed.error} retry={() => void failed.refetch()} />
        ) : isWaiting ? (
          <Waiting lines={8} />
        ) : things.length === 0 ? (
          <Empty title={part ? "Nothing here is called so" : "No tables or views in this namespace"}>
            {part ? null : <NewLink warehouse={warehouse} inside={namespace} kind="table" />}
          </Empty>
        ) : (
          <ThingList warehouse={warehouse} namespace={namespace} things={things} reachEnd={loadMore} />
        )}
      </section>
      {!failed && described && Object.keys(described.properties).length > 0 ? (
        <Card title="Properties">
          <Properties of={described.properties} />
        </Card>
      ) : null}
    </>
  );
}

/** As many rows as are seen, of any number. */
function ThingList({
  warehouse,
  namespace,
  things,
  reachEnd,
}: {
  warehouse: string;
  namespace: readonly string[];
  things: readonly Thing[];
  reachEnd: () => void;
}) {
  const scroll = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: things.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
  });
  const items = rows.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (last >= things.length - 20) reachEnd();
  }, [last, things.length]);
  return (
    <div className="scroll tall" ref={scroll}>
      <ul className="list" style={{ height: rows.getTotalSize(), position: "relative" }}>
        {items.map(({ index, start }) => {
          const thing = things[index];
          if (!thing) return null;
          return (
            <li
              key={`${thing.kind} ${thing.name}`}
              style={{ position: "absolute", insetInline: 0, transform: `translateY(${start}px)` }}
            >
              <ThingLink warehouse={warehouse} namespace={namespace} thing={thing} />
            </li>
          );
        })}
      </ul>
    </div>
  );
}

function ThingLink({
  warehouse,
  namespace,
  thing: { kind, name },
}: {
  warehouse: string;
  namespace: readonly string[];
  thing: Thing;
}) {
  const Icon = { table: Table2, view: Eye, namespace: Folder }[kind];
  const inside = (
    <>
      <Icon className={`icon kind-${kind}`} aria-hidden />
      <span className="name" title={name}>
        {name}
      </span>
      {kind === "table" ? null : <span className="tag">{kind}</span>}
    </>
  );
  if (kind === "namespace") {
    return (
      <NamespaceLink warehouse={warehouse} namespace={[...namespace, name]}>
        {inside}
      </NamespaceLink>
    );
  }
  const id = joinIdentifier({ namespace, name });
  if (kind === "view") {
    return (
      <Link to="/w/$warehouse/views/$view" params={{ warehouse, view: id }}>
        {inside}
      </Link>
    );
  }
  return (
    <Link to="/w/$warehouse/tables/$table" params={{ warehouse, table: id }}>
      {inside}
    </Link>
  );
}
