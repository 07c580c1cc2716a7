// What was dropped and can still be brought back.
import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { apiNamespace } from "../api/address.ts";
import type { Answer } from "../api/client.ts";
import { droppedQuery } from "../api/queries.ts";
import { ActDialog } from "../parts/Act.tsx";
import { commandName, writeCommand } from "../parts/command.ts";
import { Card, Head } from "../parts/Card.tsx";
import { TextField } from "../parts/fields.tsx";
import { Empty, Loaded } from "../parts/Notice.tsx";
import { Time } from "../parts/Time.tsx";
import { useWarehouse } from "../shell/Frame.tsx";

type DroppedThing = Answer<"/v1/dropped", "get">["dropped"][number];

export function Dropped() {
  const warehouse = useWarehouse();
  const query = useInfiniteQuery(droppedQuery(warehouse));
  const [chosen, setChosen] = useState<DroppedThing | null>(null);
  return (
    <div className="body">
      <title>Dropped · duckicelake</title>
      <Head title="Dropped" comment="Tables, views and namespaces that can still be brought back." />
      <Card>
        <Loaded query={query}>
          {({ pages }) => {
            const all = pages.flatMap((page) => page.dropped);
            if (all.length === 0)
              return (
                <Empty title="Nothing was dropped that is still kept">
                  What is dropped stays here for 7 days, or as long as the warehouse&rsquo;s option
                  drop-retention-seconds says.
                </Empty>
              );
            return <DroppedTable all={all} choose={setChosen} />;
          }}
        </Loaded>
        {query.hasNextPage ? (
          <p className="inside">
            <button type="button" className="button" onClick={() => void query.fetchNextPage()}>
              More
            </button>
          </p>
        ) : null}
      </Card>
      {chosen ? <Undrop warehouse={warehouse} thing={chosen} close={() => setChosen(null)} /> : null}
    </div>
  );
}

function nameOf({ namespace, name }: DroppedThing): string {
  return [...namespace, ...(name ? [name] : [])].join(".");
}

function DroppedTable({ all, choose }: { all: readonly DroppedThing[]; choose: (thing: DroppedThing) => void }) {
  return (
    <div className="scroll cards" tabIndex={0} role="group" aria-label="Dropped">
      <table>
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Kind</th>
            <th scope="col">Dropped</th>
            <th scope="col">Gone for good</th>
            <th scope="col">
              <span className="hidden-text">Bring back</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {all.map((thing) => (
            <tr key={`${thing.kind} ${thing.id}`}>
              <td className="breaks">{nameOf(thing)}</td>
              <td data-name="Kind">{thing.kind}</td>
              <td data-name="Dropped">
                <Time at={thing["dropped-at"]} />
              </td>
              <td data-name="Gone for good">
                <Time at={thing["kept-until"]} />
              </td>
              <td className="number">
                <button type="button" className="button small" onClick={() => choose(thing)}>
                  Bring back
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Undrop({ warehouse, thing, close }: { warehouse: string; thing: DroppedThing; close: () => void }) {
  const isNamespace = thing.kind === "namespace";
  const [name, setName] = useState(thing.name ?? "");
  const body = isNamespace
    ? { kind: thing.kind, id: thing.id }
    : { kind: thing.kind, id: thing.id, name: thing.name, ...(name === thing.name ? {} : { "new-name": name }) };
  const levels = [...thing.namespace, ...(thing.name ? [thing.name] : [])];
  const command = writeCommand("undrop", warehouse, [commandName(levels)], {
    kind: thing.kind === "table" ? undefined : thing.kind,
    as: isNamespace || name === thing.name ? undefined : name,
  });
  return (
    <ActDialog
      title={`Bring back ${nameOf(thing)}`}
      verb="Bring back"
      isReady={isNamespace || name.trim() !== ""}
      request={{
        method: "POST",
        path: "/v1/namespaces/{namespace}/undrop",
        warehouse,
        values: { namespace: apiNamespace(thing.namespace) },
        body,
      }}
      command={command}
      places={{ name: /exist|name/i }}
      close={close}
    >
      <p>
        {isNamespace
          ? "It comes back with all tables and views that were dropped with it."
          : "It comes back as it was: rows, snapshots, branches, properties, comments."}
      </p>
      {isNamespace ? null : (
        <TextField
          name="Name"
          hint="Another one, if that name is taken by now."
          value={name}
          change={setName}
          at="name"
          isMono
          isRequired
        />
      )}
    </ActDialog>
  );
}
