// What can be made of a query: a view, or a table with the columns of its result.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { writeType } from "../../api/columns.ts";
import { findColumns } from "../../api/rows.ts";
import { Dialog } from "../../parts/Dialog.tsx";
import { Menu } from "../../parts/Menu.tsx";
import { Trouble } from "../../parts/Notice.tsx";
import { CreateTable } from "../acts/create.tsx";
import { CreateView } from "../acts/view.tsx";

const KEPT_AS = { "A view of the query": "view", "An empty table of its columns": "table" } as const;

export function Keep({ warehouse, sql }: { warehouse: string; sql: string }) {
  const [open, setOpen] = useState<"view" | "table" | null>(null);
  const columns = useQuery({
    queryKey: [warehouse, "columns of a query", sql, []],
    queryFn: ({ signal }) => findColumns(warehouse, sql.trim().replace(/;\s*$/, ""), [], signal),
    enabled: open === "table",
    retry: false,
  });
  const close = () => setOpen(null);
  const names = Object.keys(KEPT_AS) as (keyof typeof KEPT_AS)[];
  return (
    <>
      <Menu name="Make" items={names.map((name) => ({ name, choose: () => setOpen(KEPT_AS[name]) }))} />
      {open === "view" ? <CreateView warehouse={warehouse} inside={["main"]} sql={sql} close={close} /> : null}
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
