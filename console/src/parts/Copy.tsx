import { Check, Copy as CopyIcon } from "lucide-react";
import { useEffect, useState } from "react";

const SHOWN_MS = 1600;

/** Copies a text; says so where it is read aloud, too. */
export function Copy({ text, what }: { text: string; what: string }) {
  const [state, setState] = useState<"idle" | "done" | "refused">("idle");
  useEffect(() => {
    if (state === "idle") return undefined;
    const timer = setTimeout(() => setState("idle"), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [state]);
  const copy = () =>
    copyText(text).then(
      () => setState("done"),
      () => setState("refused"),
    );
  const says = { idle: `Copy ${what}`, done: "Copied", refused: "The browser refused: select it and copy" }[state];
  return (
    <button type="button" className="button only-icon" title={says} aria-label={says} onClick={() => void copy()}>
      {state === "done" ? <Check className="icon" aria-hidden /> : <CopyIcon className="icon" aria-hidden />}
      <span role="status" className="hidden-text">
        {state === "idle" ? "" : says}
      </span>
    </button>
  );
}

/** Over plain HTTP browsers have no clipboard but that of a selection. */
async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  const isDone = document.execCommand("copy");
  field.remove();
  if (!isDone) throw new Error("refused");
}

export function Code({ text, what }: { text: string; what: string }) {
  return (
    <div className="code">
      <pre tabIndex={0} aria-label={what}>
        {text}
      </pre>
      <Copy text={text} what={what} />
    </div>
  );
}
