// Why the server refuses what a form sends, at the field that it is about.
import { createContext, useContext } from "react";

/** What went wrong, and the field that it belongs to. */
export const Refusal = createContext<{ readonly error: unknown; readonly place: string | null }>({
  error: null,
  place: null,
});

/** The server's words about a field; null if there are none. */
export function useRefusal(at: string | undefined): string | null {
  const { error, place } = useContext(Refusal);
  return at !== undefined && place === at && error instanceof Error ? error.message : null;
}

/** The server's words below what is more than one field. */
export function FieldTrouble({ at, id }: { at: string; id?: string }) {
  const text = useRefusal(at);
  if (text === null) return null;
  return (
    <p className="field-trouble" role="alert" id={id}>
      {text}
    </p>
  );
}

/** Shows what was refused: opens what it is hidden in, and leads the keyboard there. */
export function leadToRefusal(form: HTMLFormElement): void {
  const trouble = form.querySelector(".field-trouble");
  for (let above = trouble?.closest("details"); above; above = above.parentElement?.closest("details")) {
    above.open = true;
  }
  const field = form.querySelector<HTMLElement>("[aria-invalid=true]");
  field?.focus();
  trouble?.scrollIntoView({ block: "nearest" });
}
