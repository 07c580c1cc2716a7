import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { type Identifier, splitIdentifier } from "../api/address.ts";
import type { ViewMetadata } from "../api/iceberg.ts";
import { historyQuery, viewQuery } from "../api/queries.ts";
import { Card, Head } from "../parts/Card.tsx";
import { Code } from "../parts/Copy.tsx";
import { HistoryList, OlderChanges } from "../parts/HistoryList.tsx";
import { crumbsOf } from "../parts/links.tsx";
import { Loaded } from "../parts/Notice.tsx";
import { Properties } from "../parts/Properties.tsx";
import { Time } from "../parts/Time.tsx";
import { Menu } from "../parts/Menu.tsx";
import { Drop, Rename } from "./acts/names.tsx";
import { EditComment, EditProperties, isProtected, Protect } from "./acts/properties.tsx";
import { EditQuery } from "./acts/view.tsx";
import { RelationLinks } from "./RelationLinks.tsx";
import { FieldTable } from "./table/SchemaPage.tsx";

export function View() {
  const { warehouse, view: text } = useParams({ from: "/w/$warehouse/views/$view" });
  const view = useMemo(() => splitIdentifier(text), [text]);
  const query = useQuery(viewQuery(warehouse, view));
  return (
    <div className="body">
      <title>{`${view.name} · duckicelake`}</title>
      <Head
        crumbs={crumbsOf(warehouse, view.namespace)}
        title={
          <>
            {view.name} <span className="tag">view</span>
          </>
        }
        comment={query.data?.properties?.["comment"]}
      >
        {query.isError ? null : <RelationLinks warehouse={warehouse} of={view} />}
        {query.data ? <ViewActs warehouse={warehouse} view={view} metadata={query.data} /> : null}
      </Head>
      <Loaded query={query}>{(metadata) => <Contents metadata={metadata} />}</Loaded>
      {query.data ? <Changes warehouse={warehouse} namespace={view.namespace} view={view.name} /> : null}
    </div>
  );
}

const ACTS = {
  "Edit the query": EditQuery,
  "Edit the comment": EditComment,
  "Edit properties": EditProperties,
  Protect,
  Rename,
  Drop,
} as const;

function ViewActs({ warehouse, view, metadata }: { warehouse: string; view: Identifier; metadata: ViewMetadata }) {
  const [open, setOpen] = useState<keyof typeof ACTS | null>(null);
  const properties = metadata.properties ?? {};
  const of = { warehouse, kind: "view", levels: [...view.namespace, view.name] } as const;
  const act = { of, metadata, properties, uuid: metadata["view-uuid"], close: () => setOpen(null) };
  const Act = open === null ? null : ACTS[open];
  return (
    <>
      <Menu
        name="Change"
        items={(Object.keys(ACTS) as (keyof typeof ACTS)[]).map((name) => ({
          name: name === "Protect" && isProtected(properties) ? "Lift the protection" : name,
          isDangerous: name === "Drop",
          choose: () => setOpen(name),
        }))}
      />
      {Act ? <Act {...act} /> : null}
    </>
  );
}

function Contents({ metadata }: { metadata: ViewMetadata }) {
  const version = metadata.versions.find((one) => one["version-id"] === metadata["current-version-id"]);
  const schema = metadata.schemas.find((one) => one["schema-id"] === version?.["schema-id"]);
  if (!version) return null;
  return (
    <>
      <Card
        title="SQL"
        aside={
          <span className="quiet small">
            Version {version["version-id"]}, <Time at={version["timestamp-ms"]} />
          </span>
        }
      >
        <div className="inside stack">
          {version.representations.map(({ dialect, sql }) => (
            <div key={dialect} className="stack tight">
              <h3>{dialect}</h3>
              <Code text={sql} what={`the SQL for ${dialect}`} />
            </div>
          ))}
          {version["default-namespace"].length > 0 ? (
            <p className="small quiet">
              Names without a namespace are those of <code>{version["default-namespace"].join(".")}</code>.
            </p>
          ) : null}
        </div>
      </Card>
      {schema ? (
        <Card title="Columns">
          <FieldTable schema={schema} />
        </Card>
      ) : null}
      {metadata.properties && Object.keys(metadata.properties).length > 0 ? (
        <Card title="Properties">
          <Properties of={metadata.properties} />
        </Card>
      ) : null}
    </>
  );
}

function Changes(of: { warehouse: string; namespace: readonly string[]; view: string }) {
  const { warehouse, ...what } = of;
  const query = useInfiniteQuery(historyQuery(warehouse, { of: what, filter: {} }));
  return (
    <Card title="History">
      <Loaded query={query}>
        {({ pages }) => (
          <>
            <HistoryList warehouse={warehouse} entries={pages.flatMap((page) => page.history)} isNameShown={false} />
            <OlderChanges query={query} />
          </>
        )}
      </Loaded>
    </Card>
  );
}
