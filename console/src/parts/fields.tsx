// Fields of forms, each with its name above and a hint below.
import { type ReactNode, useId } from "react";

interface FieldProps {
  readonly name: string;
  readonly hint?: ReactNode;
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

export function TextField({ name, hint, value, change, offered, ...kind }: TextProps) {
  const id = useId();
  return (
    <div className="field grow">
      <label htmlFor={id}>{name}</label>
      <input
        id={id}
        className={kind.isMono ? "mono" : ""}
        type={kind.isSecret ? "password" : "text"}
        autoComplete={kind.isSecret ? "new-password" : "off"}
        autoFocus={kind.isFirst ?? false}
        spellCheck={false}
        placeholder={kind.placeholder}
        value={value}
        list={offered ? `${id}-offered` : undefined}
        aria-describedby={hint ? `${id}-hint` : undefined}
        onChange={({ target }) => change(target.value)}
      />
      {offered ? (
        <datalist id={`${id}-offered`}>
          {offered.map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
      ) : null}
      {hint ? (
        <span className="hint" id={`${id}-hint`}>
          {hint}
        </span>
      ) : null}
    </div>
  );
}

export function ChoiceField<T extends string>({
  name,
  hint,
  value,
  options,
  change,
}: FieldProps & {
  value: T;
  options: readonly (readonly [value: T, name: string])[];
  change: (value: T) => void;
}) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{name}</label>
      <select
        id={id}
        value={value}
        aria-describedby={hint ? `${id}-hint` : undefined}
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
      {hint ? (
        <span className="hint" id={`${id}-hint`}>
          {hint}
        </span>
      ) : null}
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
