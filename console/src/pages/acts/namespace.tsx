// What can be made in a namespace, and done to it.
import { Link, useNavigate } from "@tanstack/react-router";
import { Plus } from "lucide-react";
import { useState } from "react";
import { joinName } from "../../api/address.ts";
import { Dialog } from "../../parts/Dialog.tsx";
import { Menu } from "../../parts/Menu.tsx";
import { CreateNamespace, type CreateProps, CreateTable } from "./create.tsx";
import { Drop, Rename } from "./names.tsx";
import { EditComment, EditProperties, isProtected, Protect } from "./properties.tsx";
import { CreateView } from "./view.tsx";

const KINDS = { namespace: CreateNamespace, table: CreateTable, view: CreateView } as const;
type Kind = keyof typeof KINDS;
const NAMES = Object.keys(KINDS) as Kind[];

interface Place {
  readonly warehouse: string;
  readonly inside: readonly string[];
}

function searchOf(inside: readonly string[], kind: Kind): { in?: string; new: string } {
  return { ...(inside.length > 0 ? { in: joinName(inside) } : {}), new: kind };
}

export function NewMenu({ warehouse, inside }: Place) {
  const navigate = useNavigate();
  return (
    <Menu
      name="New"
      items={NAMES.map((kind) => ({
        name: `New ${kind}`,
        choose: () =>
          void navigate({ to: "/w/$warehouse/tables", params: { warehouse }, search: searchOf(inside, kind) }),
      }))}
    />
  );
}

export function NewLink({ warehouse, inside, kind }: Place & { kind: Kind }) {
  return (
    <Link to="/w/$warehouse/tables" params={{ warehouse }} search={searchOf(inside, kind)} className="button">
      <Plus className="icon" aria-hidden /> New {kind}
    </Link>
  );
}

/** The dialog that an address asks for. */
export function NewThing({ kind, ...place }: CreateProps & { kind: string | undefined }) {
  const known = NAMES.find((one) => one === kind);
  if (!known) return null;
  const Create = KINDS[known];
  return <Create {...place} />;
}

const ACTS = {
  "Edit the comment": EditComment,
  "Edit properties": EditProperties,
  Protect,
  Rename,
  Drop,
} as const;
type Act = keyof typeof ACTS;

export function NamespaceActs({
  warehouse,
  namespace,
  properties,
  stale,
}: {
  warehouse: string;
  namespace: readonly string[];
  properties: Readonly<Record<string, string>>;
  stale: (views: readonly (readonly string[])[]) => void;
}) {
  const [open, setOpen] = useState<Act | null>(null);
  const of = { warehouse, kind: "namespace", levels: namespace } as const;
  const Chosen = open === null ? null : ACTS[open];
  return (
    <>
      <Menu
        name="Change"
        items={(Object.keys(ACTS) as Act[]).map((name) => ({
          name: name === "Protect" && isProtected(properties) ? "Lift the protection" : name,
          isDangerous: name === "Drop",
          choose: () => setOpen(name),
        }))}
      />
      {Chosen ? <Chosen of={of} properties={properties} close={() => setOpen(null)} stale={stale} /> : null}
    </>
  );
}

/** Views whose queries name tables by the old name of a namespace. */
export function StaleViews({
  warehouse,
  views,
  close,
}: {
  warehouse: string;
  views: readonly (readonly string[])[];
  close: () => void;
}) {
  return (
    <Dialog label="Views to make again" close={close}>
      <div className="inside">
        <h2>Views to make again</h2>
        <p>Their queries name tables by the old name of the namespace, and find nothing there.</p>
        <ul className="stack tight">
          {views.map((levels) => (
            <li key={joinName(levels)}>
              <Link to="/w/$warehouse/views/$view" params={{ warehouse, view: joinName(levels) }}>
                {levels.join(".")}
              </Link>
            </li>
          ))}
        </ul>
        <div className="ends">
          <button type="button" className="button" onClick={close}>
            Close
          </button>
        </div>
      </div>
    </Dialog>
  );
}
