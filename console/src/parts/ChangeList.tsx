// What will be different: each thing with its value before and after.

export interface Difference {
  readonly name: string;
  /** Undefined: it isn't there. Without both, the name says what is done. */
  readonly before?: string | undefined;
  readonly after?: string | undefined;
}

/** The entries of two records that differ, by name. */
export function compareRecords(
  before: Readonly<Record<string, string>>,
  after: Readonly<Record<string, string>>,
): readonly Difference[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort((a, b) => a.localeCompare(b));
  return names
    .filter((name) => before[name] !== after[name])
    .map((name) => ({ name, before: before[name], after: after[name] }));
}

function Sign({ before, after }: Omit<Difference, "name">) {
  if (before === undefined && after === undefined) return <span>· </span>;
  if (after === undefined) return <span className="minus">− </span>;
  return before === undefined ? <span className="plus">+ </span> : <span>± </span>;
}

export function ChangeList({ of, nothing = "Nothing changes yet." }: { of: readonly Difference[]; nothing?: string }) {
  if (of.length === 0) return <p className="quiet small">{nothing}</p>;
  return (
    <section aria-label="What will change" className="will">
      <h3>What will change</h3>
      <ul className="stack tight small">
        {of.map(({ name, before, after }) => (
          <li key={`${name} ${before ?? ""}`} className="breaks">
            <Sign before={before} after={after} />
            <span className="mono">
              {name ? <bdi>{name}</bdi> : null}
              {name && (before ?? after) ? ": " : ""}
              {before === undefined ? null : <del>{before}</del>}
              {before !== undefined && after !== undefined ? " → " : ""}
              {after === undefined ? null : <ins>{after}</ins>}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
