// Fields of forms, each with its name above and a hint below.
import { type ReactNode, useId } from "react";
import { FieldTrouble, useRefusal } from "./refusal.tsx";

interface FieldProps {
  readonly name: string;
  readonly hint?: ReactNode;
  /** Its name among the places of the act: what the server says of it stands below it. */
  readonly at?: string | undefined;
  readonly isRequired?: boolean;
}

/** What a control says of itself, with the ids of what stands below it. */
function describeControl(id: string, { hint, isRequired }: FieldProps, refusal: string | null) {
  const below = [hint ? `${id}-hint` : null, refusal === null ? null : `${id}-trouble`].filter((one) => one !== null);
  return {
    id,
    "aria-required": isRequired || undefined,
    "aria-invalid": refusal === null ? undefined : true,
    "aria-describedby": below.join(" ") || undefined,
  };
}

function Below({ id, hint, at }: { id: string } & Pick<FieldProps, "hint" | "at">) {
  return (
    <>
      {hint ? (
        <span className="hint" id={`${id}-hint`}>
          {hint}
        </span>
      ) : null}
      {at === undefined ? null : <FieldTrouble at={at} id={`${id}-trouble`} />}
    </>
  );
}

interface TextProps extends FieldProps {
  readonly value: string;
  readonly change: (value: string) => void;
  readonly isMono?: boolean;
  readonly isFirst?: boolean;
  readonly isSecret?: boolean;
  readonly placeholder?: string;
  /** What is offered while one types. */
  readonly offered?: readonly string[];
}

export function TextField({ value, change, offered, ...kind }: TextProps) {
  const id = useId();
  const refusal = useRefusal(kind.at);
  return (
    <div className="field grow">
      <label htmlFor={id}>{kind.name}</label>
      <input
        {...describeControl(id, kind, refusal)}
        className={kind.isMono ? "mono" : ""}
        type={kind.isSecret ? "password" : "text"}
        autoComplete={kind.isSecret ? "new-password" : "off"}
        autoFocus={kind.isFirst ?? false}
        spellCheck={false}
        placeholder={kind.placeholder}
        value={value}
        list={offered ? `${id}-offered` : undefined}
        onChange={({ target }) => change(target.value)}
      />
      {offered ? (
        <datalist id={`${id}-offered`}>
          {offered.map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
      ) : null}
      <Below id={id} hint={kind.hint} at={kind.at} />
    </div>
  );
}

interface AreaProps extends FieldProps {
  readonly value: string;
  readonly change: (value: string) => void;
  readonly rows: number;
  readonly isMono?: boolean;
  readonly isFirst?: boolean;
  readonly placeholder?: string;
  readonly leave?: () => void;
}

/** A text of several lines. */
export function AreaField({ value, change, rows, leave, ...kind }: AreaProps) {
  const id = useId();
  const refusal = useRefusal(kind.at);
  return (
    <div className="field">
      <label htmlFor={id}>{kind.name}</label>
      <textarea
        {...describeControl(id, kind, refusal)}
        className={kind.isMono ? "mono" : ""}
        rows={rows}
        autoFocus={kind.isFirst ?? false}
        spellCheck={!kind.isMono}
        placeholder={kind.placeholder}
        value={value}
        onChange={({ target }) => change(target.value)}
        onBlur={leave}
      />
      <Below id={id} hint={kind.hint} at={kind.at} />
    </div>
  );
}

export function ChoiceField<T extends string>({
  value,
  options,
  change,
  ...kind
}: FieldProps & {
  value: T;
  options: readonly (readonly [value: T, name: string])[];
  change: (value: T) => void;
}) {
  const id = useId();
  const refusal = useRefusal(kind.at);
  return (
    <div className="field">
      <label htmlFor={id}>{kind.name}</label>
      <select
        {...describeControl(id, kind, refusal)}
        value={value}
        onChange={({ target }) => {
          const chosen = options.find(([option]) => option === target.value);
          if (chosen) change(chosen[0]);
        }}
      >
        {options.map(([option, shown]) => (
          <option key={option} value={option}>
            {shown}
          </option>
        ))}
      </select>
      <Below id={id} hint={kind.hint} at={kind.at} />
    </div>
  );
}

export function CheckField({
  name,
  hint,
  isOn,
  change,
}: FieldProps & { isOn: boolean; change: (isOn: boolean) => void }) {
  return (
    <label className="check">
      <input type="checkbox" checked={isOn} onChange={({ target }) => change(target.checked)} />
      <span>
        {name}
        {hint ? <span className="hint"> {hint}</span> : null}
      </span>
    </label>
  );
}

/** What is typed to be sure of an act that can't be taken back. */
export function SureField({ word, value, change }: { word: string; value: string; change: (value: string) => void }) {
  return (
    <label className="field">
      <span>
        Type <code>{word}</code> to be sure
      </span>
      <input value={value} onChange={({ target }) => change(target.value)} autoFocus spellCheck={false} />
    </label>
  );
}

/** Which rows of a list are shown. */
export function Segments<T extends string>({
  name,
  value,
  options,
  choose,
}: {
  name: string;
  value: T;
  options: readonly (readonly [value: T, name: string])[];
  choose: (value: T) => void;
}) {
  return (
    <div className="segments" role="group" aria-label={name}>
      {options.map(([option, shown]) => (
        <button key={option} type="button" aria-pressed={option === value} onClick={() => choose(option)}>
          {shown}
        </button>
      ))}
    </div>
  );
}

/** Words that are divided by commas or spaces. */
export function splitWords(text: string): readonly string[] {
  return text.split(/[\s,]+/).filter(Boolean);
}

export const DOTS = "A dot inside of a name has a tilde before it.";

interface NameFieldProps {
  readonly name?: string;
  readonly value: string;
  readonly change: (text: string) => void;
}

/** The name of what a dialog makes or renames. */
export function NameField({ name = "Name, with its namespace", value, change }: NameFieldProps) {
  return <TextField name={name} hint={DOTS} value={value} change={change} at="name" isMono isFirst isRequired />;
}
