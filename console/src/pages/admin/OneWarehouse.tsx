// A warehouse: where it is, who decides there, its options, and what can be done to it.
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { FIRST_WAREHOUSE } from "../../api/address.ts";
import { optionsQuery, serverQuery, warehouseQuery } from "../../api/administration.ts";
import { callerQuery } from "../../api/queries.ts";
import { ActDialog } from "../../parts/Act.tsx";
import { writeCommand } from "../../parts/command.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { CheckField, SureField, TextField } from "../../parts/fields.tsx";
import { Facts } from "../../parts/Facts.tsx";
import { Menu } from "../../parts/Menu.tsx";
import { Loaded } from "../../parts/Notice.tsx";
import { Time } from "../../parts/Time.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";
import { WarehouseOptions } from "./WarehouseOptions.tsx";

const ACTS = { Rename, "Change its database": Move, Drop } as const;

interface ActProps {
  readonly name: string;
  readonly close: () => void;
}

export function OneWarehouse() {
  const at = useWarehouse();
  const { name } = useParams({ from: "/w/$warehouse/warehouses/$name" });
  const [open, setOpen] = useState<keyof typeof ACTS | null>(null);
  const options = useQuery(optionsQuery(name));
  const isFirst = name === FIRST_WAREHOUSE;
  const Act = open === null ? null : ACTS[open];
  const acts = (Object.keys(ACTS) as (keyof typeof ACTS)[]).map((act) => ({
    name: act,
    isDangerous: act === "Drop",
    choose: () => setOpen(act),
  }));
  const all = {
    key: "all",
    link: (
      <Link to="/w/$warehouse/warehouses" params={{ warehouse: at }}>
        Warehouses
      </Link>
    ),
  };
  return (
    <div className="body">
      <title>{`${name} · Warehouses · duckicelake`}</title>
      <Head
        crumbs={[all]}
        title={name}
        comment={isFirst ? "The first warehouse, which the settings describe." : undefined}
      >
        <Link to="/w/$warehouse" params={{ warehouse: name }} className="button">
          Open it
        </Link>
        {isFirst ? null : <Menu name="Change" items={acts} />}
      </Head>
      <div className="columns">
        {isFirst ? <First /> : <Other name={name} />}
        <Deciding name={name} />
      </div>
      <Card title="Options">
        <Loaded query={options}>
          {({ options: values }) => <WarehouseOptions name={name} values={values} isFirst={isFirst} />}
        </Loaded>
      </Card>
      {Act ? <Act name={name} close={() => setOpen(null)} /> : null}
    </div>
  );
}

function First() {
  const server = useQuery(serverQuery());
  return (
    <Card title="Where it is">
      <Loaded query={server}>
        {(found) => (
          <Facts
            of={[
              ["Files", <span className="mono">{found.warehouse}</span>],
              ["Logins", found["requires-login"] ? "required" : "none: everyone may do everything"],
              ["Issuer of the settings", found["settings-issuer"] ?? "none"],
              ["Ids of snapshots", found["snapshot-ids"] === "client" ? "those of clients" : "DuckLake’s"],
            ]}
          />
        )}
      </Loaded>
    </Card>
  );
}

function Other({ name }: { name: string }) {
  const query = useQuery(warehouseQuery(name));
  return (
    <Card title="Where it is">
      <Loaded query={query}>
        {(found) => (
          <Facts
            of={[
              ["State", <span className={found.state === "active" ? "tag good" : "tag warn"}>{found.state}</span>],
              ["Files", <span className="mono">{found.location}</span>],
              ["Storage profile", found["storage-profile"] ?? "none: the store of the settings"],
              [
                "Database",
                found["database-url"] ? <span className="mono">{found["database-url"]}</span> : "the server’s",
              ],
              ["Schema in Postgres", <span className="mono">{found["metadata-schema"]}</span>],
              ["In paths of routes", <span className="mono">{found.prefix}</span>],
              ["Catalog", found["is-adopted"] ? "adopted" : "made by this server"],
              ["Id", <span className="mono">{found["warehouse-id"]}</span>],
              ["Created", <Time at={found.created} isFull />],
            ]}
          />
        )}
      </Loaded>
    </Card>
  );
}

const POLL_MS = 400;

function Deciding({ name }: { name: string }) {
  const [isOpen, setOpen] = useState(false);
  const [awaited, setAwaited] = useState<boolean | null>(null);
  // Workers follow a switch within two seconds.
  const caller = useQuery({
    ...callerQuery(name),
    refetchInterval: ({ state }) => (awaited !== null && state.data?.["grants-on"] !== awaited ? POLL_MS : false),
  });
  return (
    <Card title="Who decides">
      <Loaded query={caller}>
        {(found) => {
          const isOn = found["grants-on"];
          return (
            <div className="inside stack">
              <p>
                <span className={isOn ? "tag good" : "tag"}>Grants are {isOn ? "on" : "off"}</span>
              </p>
              <p className="quiet">
                {isOn
                  ? "Each request needs a scope of its token and a grant."
                  : "The scopes of tokens decide alone. Grants can be given already, and count once they are on."}
              </p>
              <p className="row">
                <button type="button" className="button" onClick={() => setOpen(true)}>
                  Turn grants {isOn ? "off" : "on"}
                </button>
              </p>
              {isOpen ? <SwitchGrants name={name} isOn={!isOn} close={() => setOpen(false)} done={setAwaited} /> : null}
            </div>
          );
        }}
      </Loaded>
    </Card>
  );
}

function SwitchGrants({
  name,
  isOn,
  close,
  done,
}: {
  name: string;
  isOn: boolean;
  close: () => void;
  done: (isOn: boolean) => void;
}) {
  const state = isOn ? "on" : "off";
  return (
    <ActDialog
      title={`Turn grants ${state} in ${name}`}
      verb={`Turn them ${state}`}
      isDangerous={!isOn}
      request={{
        method: "POST",
        path: "/management/v1/governance",
        warehouse: FIRST_WAREHOUSE,
        body: { document: { warehouses: [{ name, "grants-on": isOn }] } },
      }}
      touches={name}
      answered={() => done(isOn)}
      command={writeCommand("warehouse grants", FIRST_WAREHOUSE, [name, state])}
      close={close}
    >
      <p>
        {isOn
          ? "From now on, it takes a grant to do anything there, but for administrators. Scopes stay the upper bound. Grants that were given already count at once."
          : "From now on, the scopes of tokens decide alone. A scope that covers everything then may do everything, whatever was granted. Tokens with the scope grants may do nothing."}
      </p>
      <p className="small quiet">Servers that run follow within two seconds.</p>
    </ActDialog>
  );
}

function Rename({ name, close }: ActProps) {
  const navigate = useNavigate();
  const at = useWarehouse();
  const [to, setTo] = useState(name);
  return (
    <ActDialog
      title={`Rename ${name}`}
      verb="Rename"
      isReady={to !== "" && to !== name}
      request={{
        method: "POST",
        path: "/management/v1/warehouses/{warehouse}/rename",
        warehouse: FIRST_WAREHOUSE,
        values: { warehouse: name },
        body: { name: to },
      }}
      command={writeCommand("warehouse rename", FIRST_WAREHOUSE, [name, to])}
      places={{ name: /name|already/i }}
      close={close}
      done={() =>
        void navigate({
          to: "/w/$warehouse/warehouses/$name",
          params: { warehouse: at === name ? to : at, name: to },
          replace: true,
        })
      }
    >
      <p>
        Its schema and files stay. The old name ends within a second: clients take the new one into their setting{" "}
        <code>warehouse</code>, and scopes that name it have to be given anew.
      </p>
      <TextField
        name="New name"
        hint="Lower-case letters, digits, _ and -."
        value={to}
        change={setTo}
        at="name"
        isFirst
        isRequired
      />
    </ActDialog>
  );
}

function Move({ name, close }: ActProps) {
  const [url, setUrl] = useState("");
  return (
    <ActDialog
      title={`Change the database of ${name}`}
      verb="Change"
      isReady={url !== ""}
      request={{
        method: "POST",
        path: "/management/v1/warehouses/{warehouse}/database",
        warehouse: FIRST_WAREHOUSE,
        values: { warehouse: name },
        body: { "database-url": url },
      }}
      shown={{ "database-url": "postgresql://LOGIN:PASSWORD@HOST/DATABASE" }}
      command={`${writeCommand("warehouse database", FIRST_WAREHOUSE, [name, "postgresql://LOGIN@HOST/DATABASE"])} < password`}
      places={{ url: /database|catalog|SECRET_KEYS/ }}
      close={close}
    >
      <p>
        The server reaches the same catalog by another host, login or password. It is refused if that database has
        another catalog.
      </p>
      <TextField
        name="URL"
        hint="With login and password. It is kept encrypted, and never shown again."
        value={url}
        change={setUrl}
        at="url"
        isSecret
        isRequired
        isFirst
      />
    </ActDialog>
  );
}

function Drop({ name, close }: ActProps) {
  const navigate = useNavigate();
  const at = useWarehouse();
  const [typed, setTyped] = useState("");
  const [isForced, setForced] = useState(false);
  const [isKept, setKept] = useState(false);
  const query = { ...(isForced ? { force: "true" } : {}), ...(isKept ? { "keep-lake": "true" } : {}) };
  return (
    <ActDialog
      title={`Drop the warehouse ${name}`}
      verb="Drop"
      isDangerous
      isReady={typed === name}
      request={{
        method: "DELETE",
        path: "/management/v1/warehouses/{warehouse}",
        warehouse: FIRST_WAREHOUSE,
        values: { warehouse: name },
        query,
      }}
      command={writeCommand("warehouse drop", FIRST_WAREHOUSE, [name], { force: isForced, "keep-lake": isKept })}
      close={close}
      done={() =>
        void navigate({ to: "/w/$warehouse/warehouses", params: { warehouse: at === name ? FIRST_WAREHOUSE : at } })
      }
    >
      <p>
        {isKept
          ? "The server only stops serving it. Its catalog stays in its schema, and can be adopted again."
          : isForced
            ? "Its catalog goes with all tables, views, history and grants. This can’t be taken back. Data files stay."
            : "Its catalog goes, if it has no tables, views and namespaces. Data files stay."}
      </p>
      <CheckField name="Only stop serving it" isOn={isKept} change={setKept} />
      <CheckField name="Drop it with all that it has" isOn={isForced} change={setForced} />
      <SureField word={name} value={typed} change={setTyped} />
    </ActDialog>
  );
}
