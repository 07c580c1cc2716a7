// All that is known of one entry of a list, above the list.
import type { ReactNode } from "react";
import { Dialog } from "./Dialog.tsx";
import { Facts } from "./Facts.tsx";

export function Details({
  label,
  title,
  of,
  close,
  children,
}: {
  label: string;
  title: string;
  of: readonly (readonly [name: string, value: ReactNode])[];
  close: () => void;
  children?: ReactNode;
}) {
  return (
    <Dialog label={label} className="wide" close={close}>
      <div className="inside">
        <h2 className="breaks">{title}</h2>
        <Facts of={of} />
        {children}
        <div className="ends">
          <button type="button" className="button" onClick={close}>
            Close
          </button>
        </div>
      </div>
    </Dialog>
  );
}

const KINDS: Readonly<Record<string, string>> = {
  done: "good",
  running: "accent",
  blocked: "bad",
  failed: "bad",
  lost: "bad",
};

/** How far a job or a task is, or how it ended. */
export function StateTag({ state }: { state: string }) {
  return <span className={`tag ${KINDS[state] ?? ""}`}>{state}</span>;
}
