// The warehouses of the server, and the storage profiles that they name.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { FIRST_WAREHOUSE } from "../../api/address.ts";
import {
  allWarehousesQuery,
  profilesQuery,
  serverQuery,
  type StorageProfile,
  type Warehouse,
} from "../../api/administration.ts";
import { ActDialog } from "../../parts/Act.tsx";
import { writeCommand } from "../../parts/command.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { SureField, TextField } from "../../parts/fields.tsx";
import { type Column, LongTable } from "../../parts/LongTable.tsx";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";
import { CreateStorageProfile, findStore } from "./CreateStorageProfile.tsx";

export function Warehouses() {
  const [open, setOpen] = useState<"warehouse" | "profile" | null>(null);
  const [dropped, setDropped] = useState<StorageProfile | null>(null);
  const profiles = useInfiniteQuery(profilesQuery());
  const close = () => setOpen(null);
  return (
    <div className="body">
      <title>Warehouses · duckicelake</title>
      <Head title="Warehouses" comment="Lakes that this server has, each with tables, files and grants of its own.">
        <button type="button" className="button primary" onClick={() => setOpen("warehouse")}>
          Create a warehouse
        </button>
      </Head>
      <WarehouseList />
      <Card
        title="Storage profiles"
        aside={
          <button type="button" className="button small" onClick={() => setOpen("profile")}>
            Create a profile
          </button>
        }
      >
        <Loaded query={profiles} lines={3}>
          {({ pages }) => {
            const all = pages.flatMap((page) => page["storage-profiles"]);
            if (all.length === 0) {
              return (
                <Empty title="No storage profiles">
                  A profile is a folder in a store of S3, Google or Azure, and a key. Warehouses without one have their
                  files in the store of the server&rsquo;s settings.
                </Empty>
              );
            }
            return (
              <LongTable name="Profiles" rows={all} columns={profileColumns(setDropped)} keyOf={({ name }) => name} />
            );
          }}
        </Loaded>
      </Card>
      {open === "warehouse" ? <CreateWarehouse close={close} /> : null}
      {open === "profile" ? <CreateStorageProfile close={close} /> : null}
      {dropped ? <DropProfile name={dropped.name} close={() => setDropped(null)} /> : null}
    </div>
  );
}

function WarehouseList() {
  const at = useWarehouse();
  const query = useInfiniteQuery(allWarehousesQuery());
  const { data: server } = useQuery(serverQuery());
  const columns: readonly Column<Pick<Warehouse, "name" | "location"> & Partial<Warehouse>>[] = [
    {
      name: "Name",
      show: ({ name }) => (
        <Link to="/w/$warehouse/warehouses/$name" params={{ warehouse: at, name }}>
          {name}
        </Link>
      ),
    },
    {
      name: "State",
      show: ({ state = "active" }) => <span className={state === "active" ? "tag good" : "tag warn"}>{state}</span>,
    },
    { name: "Files", show: ({ location }) => <span className="mono breaks">{location}</span> },
    {
      name: "Storage profile",
      show: (row) => row["storage-profile"] ?? <span className="quiet">of the settings</span>,
    },
    {
      name: "Catalog",
      show: (row) => (
        <span className="mono breaks">{row["database-url"] ?? row["metadata-schema"] ?? "of the settings"}</span>
      ),
    },
    {
      name: "Created",
      show: ({ created }) => (created ? <Time at={created} /> : <span className="quiet">first</span>),
    },
  ];
  return (
    <Card>
      <Loaded query={query}>
        {({ pages }) => {
          const first = { name: FIRST_WAREHOUSE, location: server?.warehouse ?? "" };
          const all = [first, ...pages.flatMap((page) => page.warehouses)];
          return (
            <LongTable
              name="Warehouses"
              rows={all}
              columns={columns}
              keyOf={({ name }) => name}
              reachEnd={() => (query.hasNextPage && !query.isFetchingNextPage ? void query.fetchNextPage() : undefined)}
            />
          );
        }}
      </Loaded>
    </Card>
  );
}

const STORES = { s3: "Amazon", google: "Google", azure: "Azure" } as const;

/** Whose store it is, and how it encrypts and is paid for, where the profile says so. */
function StoreOf({ profile: { root, endpoint, region, sse, ...more } }: { profile: StorageProfile }) {
  return (
    <div className="tags">
      <span className="breaks">{[endpoint ?? STORES[findStore(root)], region].filter(Boolean).join(", ")}</span>
      {sse ? <span className="tag">encrypted by {sse}</span> : null}
      {more["requester-pays"] ? <span className="tag">requester pays</span> : null}
    </div>
  );
}

function profileColumns(drop: (profile: StorageProfile) => void): readonly Column<StorageProfile>[] {
  return [
    { name: "Name", show: ({ name }) => <strong>{name}</strong> },
    { name: "Folder", show: ({ root }) => <span className="mono breaks">{root}</span> },
    { name: "Store", show: (row) => <StoreOf profile={row} /> },
    { name: "Keys for clients", show: ({ vending }) => vending ?? "as the settings choose" },
    {
      name: "Key of the server",
      show: (row) => (row.credentials === "key" ? `kept encrypted by ${row["encrypted-by"]}` : "the server’s own"),
    },
    { name: "Created", show: ({ created }) => <Time at={created} /> },
    {
      name: "Drop",
      kind: "hidden",
      show: (row) => (
        <button type="button" className="button small" aria-label={`Drop ${row.name}`} onClick={() => drop(row)}>
          Drop
        </button>
      ),
    },
  ];
}

function CreateWarehouse({ close }: { close: () => void }) {
  const profiles = useInfiniteQuery(profilesQuery());
  const [name, setName] = useState("");
  const [location, setLocation] = useState("");
  const [schema, setSchema] = useState("");
  const [profile, setProfile] = useState("");
  const [url, setUrl] = useState("");
  const given = {
    ...(location ? { location } : {}),
    ...(schema ? { "adopted-schema": schema } : {}),
    ...(profile ? { "storage-profile": profile } : {}),
    ...(url ? { "database-url": url } : {}),
  };
  const options = { location, adopt: schema, "storage-profile": profile, "database-url": hidePassword(url) };
  const command = writeCommand("warehouse create", FIRST_WAREHOUSE, [name || "NAME"], options);
  return (
    <ActDialog
      title="Create a warehouse"
      verb="Create"
      isReady={name.trim() !== ""}
      request={{
        method: "POST",
        path: "/management/v1/warehouses",
        warehouse: FIRST_WAREHOUSE,
        body: { name, ...given },
      }}
      shown={url ? { name, ...given, "database-url": hidePassword(url) } : { name, ...given }}
      command={url ? `${command} < password` : command}
      places={{
        profile: /storage profile|storage-profile/i,
        url: /database-url|SECRET_KEYS/,
        schema: /schema|catalog/i,
        location: /location|folder/i,
        name: /name|already/i,
      }}
      close={close}
    >
      <p>
        {schema
          ? "The server serves the DuckLake catalog that this schema has, with its tables and files."
          : "A new, empty lake: a schema in Postgres and a folder for its files. Clients reach it within a second."}
      </p>
      <TextField
        name="Name"
        hint="Lower-case letters, digits, _ and -."
        value={name}
        change={setName}
        at="name"
        isFirst
        isRequired
      />
      <TextField
        name="Folder of its files"
        hint="None: its name below the first folder for warehouses."
        placeholder="s3://bucket/warehouses/sales"
        value={location}
        change={setLocation}
        at="location"
        isMono
      />
      <TextField
        name="Storage profile"
        hint="None: the store of the server’s settings."
        value={profile}
        change={setProfile}
        at="profile"
        offered={profiles.data?.pages.flatMap((page) => page["storage-profiles"].map((one) => one.name)) ?? []}
      />
      <details>
        <summary>A catalog that is there, or another database</summary>
        <div className="stack">
          <TextField
            name="Schema to adopt"
            hint="Of a DuckLake catalog in Postgres. None: a new catalog."
            value={schema}
            change={setSchema}
            at="schema"
            isMono
          />
          <TextField
            name="URL of its database"
            hint="With login and password. It is kept encrypted, and never shown again. None: the server’s own."
            value={url}
            change={setUrl}
            at="url"
            isSecret
          />
        </div>
      </details>
    </ActDialog>
  );
}

/** A URL as a command line may have it: the password is read from standard input. */
function hidePassword(url: string): string {
  return url.replace(/^(\w+:\/\/[^:/@]*):[^@]*@/, "$1@");
}

function DropProfile({ name, close }: { name: string; close: () => void }) {
  const [typed, setTyped] = useState("");
  return (
    <ActDialog
      title={`Drop the storage profile ${name}`}
      verb="Drop"
      isDangerous
      isReady={typed === name}
      request={{
        method: "DELETE",
        path: "/management/v1/storage-profiles/{profile}",
        warehouse: FIRST_WAREHOUSE,
        values: { profile: name },
      }}
      command={writeCommand("storage-profile drop", FIRST_WAREHOUSE, [name])}
      close={close}
    >
      <p>Its key is forgotten. A profile that a warehouse uses is refused. No file goes.</p>
      <SureField word={name} value={typed} change={setTyped} />
    </ActDialog>
  );
}
