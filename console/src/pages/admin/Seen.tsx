// What a principal sees of a table: which rows, and which columns as they are.
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { columnsQuery, columnTagsQuery, decisionQuery, policiesQuery, type Policy } from "../../api/governance.ts";
import type { GovernedObject } from "../../api/objects.ts";
import { useAddressText } from "../../parts/addressText.ts";
import { Card } from "../../parts/Card.tsx";
import { TextField } from "../../parts/fields.tsx";
import { Loaded } from "../../parts/Notice.tsx";
import { usePrincipalNames } from "./objects.tsx";

/** As docs/governance.md has them: of several masks of a column, the first counts. */
export const MASKS = [
  ["replace-with-null", "null"],
  ["mask-to-fixed-value", "one value for all"],
  ["sha-256-query-local", "a hash, the same within one query"],
  ["sha-256-global", "a hash, always the same"],
  ["mask-alphanum", "n for digits, x for other characters"],
  ["truncate-to-year", "the first day of the year"],
  ["truncate-to-month", "the first day of the month"],
  ["show-last-4", "the last four characters"],
  ["show-first-4", "the first four characters"],
] as const;

interface Place {
  readonly warehouse: string;
  readonly table: GovernedObject;
  readonly on: string;
}

export function Seen({ warehouse, table, on }: Place) {
  const [principal, setPrincipal] = useAddressText("who");
  const [typed, setTyped] = useState(principal);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setPrincipal(typed.trim());
  };
  return (
    <Card title="What a principal sees of it">
      <div className="inside stack">
        <form className="row ends" onSubmit={submit}>
          <TextField name="Who" value={typed} change={setTyped} offered={usePrincipalNames(warehouse)} />
          <button className="button">Show</button>
        </form>
        {principal ? <SeenBy warehouse={warehouse} table={table} on={on} principal={principal} /> : null}
      </div>
    </Card>
  );
}

function SeenBy({ warehouse, table, on, principal }: Place & { principal: string }) {
  const decision = useQuery(decisionQuery(warehouse, { principal, action: "select", on }));
  const policies = useInfiniteQuery(policiesQuery(warehouse, on));
  const all = useInfiniteQuery(policiesQuery(warehouse, undefined));
  const tags = useInfiniteQuery(columnTagsQuery(warehouse, on));
  const { data: known = [] } = useQuery(columnsQuery(warehouse, table));
  return (
    <Loaded query={decision} lines={4}>
      {({ "is-allowed": isAllowed, "is-in-scope": isInScope, by, "grants-on": isOn, policies: names = [] }) => {
        const mayQuery = isInScope && (!isOn || by.length > 0);
        if (!mayQuery && !isAllowed) return <p className="banner bad">{principal} may not read the table.</p>;
        const listed = [...(policies.data?.pages ?? []), ...(all.data?.pages ?? [])].flatMap((page) => page.policies);
        const counting = names.flatMap((name) => listed.find((policy) => policy.name === name) ?? []);
        const masks = findMasks(counting, tags.data?.pages.flatMap((page) => page.tags) ?? []);
        const filters = counting.flatMap(({ condition }) => condition ?? []);
        const columns = known.length > 0 ? known : [...masks.keys()];
        return (
          <>
            <p>
              {filters.length === 0 ? (
                <>{principal} sees all rows.</>
              ) : (
                <>
                  {principal} sees the rows where <code>{filters.join(" AND ")}</code>.
                </>
              )}{" "}
              {isAllowed ? "" : "By queries of the server, not by files: keys for them aren’t given."}
            </p>
            {columns.length > 0 ? <Columns columns={columns} masks={masks} /> : null}
          </>
        );
      }}
    </Loaded>
  );
}

/** The mask of each column that has one: of several the strictest. */
function findMasks(
  policies: readonly Policy[],
  tags: readonly { readonly tag: string; readonly column: string }[],
): ReadonlyMap<string, string> {
  const masks = new Map<string, string>();
  const strictness = (mask: string) => MASKS.findIndex(([name]) => name === mask);
  for (const { mask, column, tag } of policies) {
    if (!mask) continue;
    const columns = column ? [column] : tags.filter((one) => one.tag === tag).map((one) => one.column);
    for (const name of columns) {
      const known = masks.get(name);
      if (known === undefined || strictness(mask) < strictness(known)) masks.set(name, mask);
    }
  }
  return masks;
}

function Columns({ columns, masks }: { columns: readonly string[]; masks: ReadonlyMap<string, string> }) {
  return (
    <div className="scroll tall cards" tabIndex={0} role="group" aria-label="Columns that are seen">
      <table>
        <thead>
          <tr>
            <th scope="col">Column</th>
            <th scope="col">Is seen as</th>
          </tr>
        </thead>
        <tbody>
          {columns.map((column) => {
            const mask = masks.get(column);
            return (
              <tr key={column}>
                <td className="mono">{column}</td>
                <td data-name="Is seen as">
                  {mask ? (
                    <>
                      <span className="tag warn">{mask}</span> {MASKS.find(([name]) => name === mask)?.[1]}
                    </>
                  ) : (
                    <span className="quiet">it is</span>
                  )}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
