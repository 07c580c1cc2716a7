// The routes of the server, as its OpenAPI document describes them: found by a part of their names, each with a way to try it.
import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { Fragment, useMemo } from "react";
import { serverUrl } from "../../api/address.ts";
import { type ApiDescription, descriptionQuery, type Operation } from "../../api/operation.ts";
import { useAddressPart } from "../../parts/addressText.ts";
import { Card, Head } from "../../parts/Card.tsx";
import { plural } from "../../parts/format.ts";
import { Empty, Loaded } from "../../parts/Notice.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";
import { RouteDetails } from "./RouteDetails.tsx";

export interface Route {
  /** `GET /v1/namespaces`, which names it in addresses. */
  readonly id: string;
  readonly method: string;
  readonly path: string;
  readonly operation: Operation;
}

const METHODS = ["get", "post", "put", "delete", "head"];

function listRoutes({ paths }: ApiDescription): readonly Route[] {
  return Object.entries(paths)
    .flatMap(([path, operations]) =>
      METHODS.flatMap((method) => {
        const operation = operations[method];
        return operation ? [{ id: `${method.toUpperCase()} ${path}`, method, path, operation }] : [];
      }),
    )
    .sort((a, b) => a.path.localeCompare(b.path));
}

function hasPart({ id, operation }: Route, wanted: string): boolean {
  return [id, operation.description ?? "", operation.summary ?? ""].some((text) => text.toLowerCase().includes(wanted));
}

export function ApiReference() {
  const warehouse = useWarehouse();
  const { route: chosen } = useSearch({ from: "/w/$warehouse/api" });
  const query = useQuery(descriptionQuery());
  return (
    <div className="body">
      <title>API · duckicelake</title>
      <Head title="API" comment="Iceberg's REST catalog, and what this server has beside it.">
        <a className="button" href={`${serverUrl}openapi.json`}>
          openapi.json
        </a>
      </Head>
      <Loaded query={query} lines={12}>
        {(description) => (
          <div className="browse wide">
            <RouteList warehouse={warehouse} routes={listRoutes(description)} chosen={chosen} />
            <Chosen description={description} id={chosen} />
          </div>
        )}
      </Loaded>
    </div>
  );
}

function Chosen({ description, id }: { description: ApiDescription; id: string | undefined }) {
  const route = useMemo(() => listRoutes(description).find((one) => one.id === id), [description, id]);
  if (route) return <RouteDetails key={route.id} description={description} route={route} />;
  return (
    <Card>
      <Empty title={id ? "There is no such route" : "Choose a route"}>
        What it takes and answers is shown here, and routes that change nothing can be tried.
      </Empty>
    </Card>
  );
}

function RouteList({
  warehouse,
  routes,
  chosen,
}: {
  warehouse: string;
  routes: readonly Route[];
  chosen: string | undefined;
}) {
  const [part, setPart] = useAddressPart();
  const wanted = part.trim().toLowerCase();
  const shown = wanted ? routes.filter((route) => hasPart(route, wanted)) : routes;
  const tags = [...new Set(shown.map(({ operation }) => operation.tags?.[0] ?? "others"))].sort();
  return (
    <section className="card routes" aria-label="Routes">
      <header>
        <input
          type="search"
          className="grow"
          placeholder="Part of a route"
          aria-label="Part of a route"
          value={part}
          onChange={({ target }) => setPart(target.value)}
        />
        <span className="quiet small" role="status">
          {plural(shown.length, "route")}
        </span>
      </header>
      <div className="scroll tall" tabIndex={0} role="group" aria-label="List of routes">
        {tags.map((tag) => (
          <section key={tag} aria-label={tag}>
            <h2 className="tag-name">{tag}</h2>
            <ul>
              {shown
                .filter(({ operation }) => (operation.tags?.[0] ?? "others") === tag)
                .map(({ id, method, path }) => (
                  <li key={id}>
                    <Link
                      to="/w/$warehouse/api"
                      params={{ warehouse }}
                      search={(before) => ({ ...before, route: id })}
                      className={id === chosen ? "route chosen" : "route"}
                      aria-current={id === chosen ? "true" : undefined}
                    >
                      <Method name={method} /> <Path of={path} />
                    </Link>
                  </li>
                ))}
            </ul>
          </section>
        ))}
        {shown.length === 0 ? <Empty title="No route has that" /> : null}
      </div>
    </section>
  );
}

/** A path, which lines break behind its slashes. */
export function Path({ of: path }: { of: string }) {
  const steps = path.split("/").slice(1);
  return (
    <span className="mono breaks">
      {steps.map((step, place) => (
        <Fragment key={place}>
          /<wbr />
          {step}
        </Fragment>
      ))}
    </span>
  );
}

export function Method({ name }: { name: string }) {
  const kind = { get: "good", post: "accent", delete: "bad" }[name] ?? "";
  return <span className={`tag method ${kind}`}>{name.toUpperCase()}</span>;
}
