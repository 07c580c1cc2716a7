// Users, service accounts, groups and roles.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { type Principal, type PrincipalKind, principalsQuery } from "../../api/administration.ts";
import { useAddressPart } from "../../parts/addressText.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { Segments } from "../../parts/fields.tsx";
import { plural } from "../../parts/format.ts";
import { PrincipalLink } from "../../parts/links.tsx";
import { type Column, LongTable } from "../../parts/LongTable.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";
import { CreatePrincipal } from "./CreatePrincipal.tsx";
import { PeopleTabs } from "./PeopleTabs.tsx";

const KINDS = [
  ["all", "All"],
  ["user", "Users"],
  ["service", "Service accounts"],
  ["group", "Groups"],
  ["role", "Roles"],
] as const;

export function People() {
  const warehouse = useWarehouse();
  const { kind } = useSearch({ from: "/w/$warehouse/people" });
  const navigate = useNavigate();
  const query = useInfiniteQuery(principalsQuery(kind));
  const [part, setPart] = useAddressPart();
  const [isOpen, setOpen] = useState(false);
  const wanted = part.trim().toLowerCase();
  const shown = useMemo(() => {
    const all = query.data?.pages.flatMap((page) => page.principals) ?? [];
    return wanted ? all.filter((one) => isCalled(one, wanted)) : all;
  }, [query.data, wanted]);
  const more = () => {
    if (query.hasNextPage && !query.isFetchingNextPage) void query.fetchNextPage();
  };
  // A part of a name is looked for in all of them, so all must be here.
  useEffect(() => {
    if (wanted) more();
  });
  const choose = (chosen: PrincipalKind | "all") =>
    void navigate({
      to: "/w/$warehouse/people",
      params: { warehouse },
      search: ({ kind: _kind, ...kept }) => (chosen === "all" ? kept : { ...kept, kind: chosen }),
      replace: true,
    });
  return (
    <div className="body">
      <title>People · duckicelake</title>
      <Head title="People" comment="Who can log in, and the groups and roles by which they have rights.">
        <button type="button" className="button primary" onClick={() => setOpen(true)}>
          Register
        </button>
      </Head>
      <PeopleTabs />
      <div className="row">
        <Segments name="Kind" value={kind ?? "all"} options={KINDS} choose={choose} />
        <input
          type="search"
          className="grow"
          placeholder="Part of a name"
          aria-label="Part of a name"
          value={part}
          onChange={({ target }) => setPart(target.value)}
        />
        <span className="quiet small" role="status">
          {query.data ? `${plural(shown.length, "entry", "entries")}${query.hasNextPage ? " so far" : ""}` : ""}
        </span>
      </div>
      <Card>
        <Loaded query={query} lines={10}>
          {() =>
            shown.length === 0 ? (
              <Empty title={wanted ? "Nothing here is called so" : "There are none yet"}>
                {wanted
                  ? null
                  : "Clients of the settings can log in without being registered, but are granted nothing."}
              </Empty>
            ) : (
              <LongTable name="Principals" rows={shown} columns={COLUMNS} keyOf={({ name }) => name} reachEnd={more} />
            )
          }
        </Loaded>
      </Card>
      {isOpen ? <CreatePrincipal kind={kind ?? "service"} close={() => setOpen(false)} /> : null}
    </div>
  );
}

function isCalled({ name, description, subject }: Principal, wanted: string): boolean {
  return [name, description, subject ?? ""].some((text) => text.toLowerCase().includes(wanted));
}

const COLUMNS: readonly Column<Principal>[] = [
  { name: "Name", show: ({ name }) => <PrincipalLink name={name} /> },
  { name: "Kind", show: ({ kind }) => <KindTag kind={kind} /> },
  {
    name: "State",
    show: (row) =>
      row["is-disabled"] ? <span className="tag bad">disabled</span> : <span className="tag good">enabled</span>,
  },
  { name: "Description", show: ({ description }) => <span className="breaks">{description}</span> },
  {
    name: "Scopes",
    show: ({ scopes, kind }) =>
      kind === "group" || kind === "role" ? null : <span className="mono breaks">{scopes.join(" ")}</span>,
  },
  { name: "Registered", show: ({ created }) => <Time at={created} /> },
];

export function KindTag({ kind }: { kind: string }) {
  return (
    <span className={kind === "role" ? "tag accent" : "tag"}>{kind === "service" ? "service account" : kind}</span>
  );
}
