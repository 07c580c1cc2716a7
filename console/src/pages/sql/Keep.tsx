// What can be made of a query: a table of its result, a view, a materialized view, or an empty table of its columns.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { writeType } from "../../api/columns.ts";
import { findColumns } from "../../api/rows.ts";
import { Dialog } from "../../parts/Dialog.tsx";
import { Menu } from "../../parts/Menu.tsx";
import { Trouble } from "../../parts/Notice.tsx";
import { CreateTable } from "../acts/create.tsx";
import { CreateMaterializedView } from "../acts/materializedView.tsx";
import { SaveResult } from "../acts/result.tsx";
import { CreateView } from "../acts/view.tsx";

const KEPT_AS = {
  "A table of the result": "result",
  "A view of the query": "view",
  "A materialized view": "materialized",
  "An empty table of its columns": "table",
} as const;
type Kept = (typeof KEPT_AS)[keyof typeof KEPT_AS];

export function Keep({ warehouse, sql: text }: { warehouse: string; sql: string }) {
  const [open, setOpen] = useState<Kept | null>(null);
  const sql = text.trim().replace(/;\s*$/, "");
  const columns = useQuery({
    queryKey: [warehouse, "columns of a query", sql, []],
    queryFn: ({ signal }) => findColumns(warehouse, sql, [], signal),
    enabled: open === "table",
    retry: false,
  });
  const close = () => setOpen(null);
  const made = { warehouse, inside: ["main"], sql, close };
  const names = Object.keys(KEPT_AS) as (keyof typeof KEPT_AS)[];
  return (
    <>
      <Menu name="Make" items={names.map((name) => ({ name, choose: () => setOpen(KEPT_AS[name]) }))} />
      {open === "result" ? <SaveResult {...made} /> : null}
      {open === "view" ? <CreateView {...made} /> : null}
      {open === "materialized" ? <CreateMaterializedView {...made} /> : null}
      {open === "table" && columns.data ? (
        <CreateTable
          warehouse={warehouse}
          inside={["main"]}
          columns={columns.data.fields.map(({ name, type }) => ({ name, type: writeType(type) }))}
          close={close}
        />
      ) : null}
      {open === "table" && columns.error ? (
        <Dialog label="New table" close={close}>
          <Trouble error={columns.error} />
        </Dialog>
      ) : null}
    </>
  );
}
