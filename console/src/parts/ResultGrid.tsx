// Rows of a query: as many in the page as are seen, of any number.
import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef, useState } from "react";
import { formatCell, type QueryResult, type ResultColumn } from "../api/rows.ts";
import { Dialog } from "./Dialog.tsx";
import { Code } from "./Copy.tsx";

const ROW_PX = 29;

interface Sorting {
  readonly column: number;
  readonly isDown: boolean;
}

export function ResultGrid({ result, className = "" }: { result: QueryResult; className?: string }) {
  const scroll = useRef<HTMLDivElement>(null);
  const [sorting, setSorting] = useState<Sorting | null>(null);
  const [opened, setOpened] = useState<{ name: string; text: string } | null>(null);
  const order = useMemo(() => orderOf(result, sorting), [result, sorting]);
  const rows = useVirtualizer({
    count: order.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => ROW_PX,
    overscan: 20,
  });
  const items = rows.getVirtualItems();
  const above = items[0]?.start ?? 0;
  const below = rows.getTotalSize() - (items.at(-1)?.end ?? 0);
  const sort = (column: number) =>
    setSorting((now) =>
      now?.column !== column ? { column, isDown: false } : now.isDown ? null : { column, isDown: true },
    );
  return (
    <div className={`grid ${className}`} ref={scroll} tabIndex={0} role="group" aria-label="Rows">
      <table aria-rowcount={result.rows + 1}>
        <thead>
          <tr>
            {result.columns.map((column, place) => (
              <HeadCell
                key={place}
                column={column}
                sorted={sorting?.column === place ? (sorting.isDown ? "descending" : "ascending") : undefined}
                sort={() => sort(place)}
              />
            ))}
          </tr>
        </thead>
        <tbody>
          {above > 0 ? <Spacer span={result.columns.length} height={above} /> : null}
          {items.map(({ index }) => {
            const row = order[index] ?? index;
            return (
              <tr key={index} aria-rowindex={index + 2}>
                {result.columns.map((column, place) => (
                  <Cell key={place} column={column} row={row} open={setOpened} />
                ))}
              </tr>
            );
          })}
          {below > 0 ? <Spacer span={result.columns.length} height={below} /> : null}
        </tbody>
      </table>
      {opened ? (
        <Dialog label={`Value of ${opened.name}`} close={() => setOpened(null)}>
          <div className="inside">
            <h2>{opened.name}</h2>
            <Code text={opened.text} what="the value" />
            <div className="ends">
              <button type="button" className="button" onClick={() => setOpened(null)}>
                Close
              </button>
            </div>
          </div>
        </Dialog>
      ) : null}
    </div>
  );
}

function HeadCell({
  column,
  sorted,
  sort,
}: {
  column: ResultColumn;
  sorted: "ascending" | "descending" | undefined;
  sort: () => void;
}) {
  const arrow = { ascending: " ↑", descending: " ↓", none: "" }[sorted ?? "none"];
  return (
    <th scope="col" className={column.isNumber ? "number" : ""} aria-sort={sorted}>
      <button type="button" className="sorter" onClick={sort} title="Sort the rows that are shown">
        {column.name}
        <span aria-hidden>{arrow}</span>
        <small>{column.type}</small>
      </button>
    </th>
  );
}

const LONG_CHARS = 60;

function Cell({
  column,
  row,
  open,
}: {
  column: ResultColumn;
  row: number;
  open: (value: { name: string; text: string }) => void;
}) {
  const text = formatCell(column.values.at(row), column.type);
  if (text === null) return <td className={column.isNumber ? "null number" : "null"}>NULL</td>;
  if (text.length <= LONG_CHARS) return <td className={column.isNumber ? "number" : ""}>{text}</td>;
  return (
    <td>
      <button type="button" className="long" title="Show all of it" onClick={() => open({ name: column.name, text })}>
        {text.slice(0, 4 * LONG_CHARS)}
      </button>
    </td>
  );
}

function Spacer({ span, height }: { span: number; height: number }) {
  return (
    <tr className="spacer" aria-hidden>
      <td colSpan={span} style={{ height }} />
    </tr>
  );
}

function orderOf({ columns, rows }: QueryResult, sorting: Sorting | null): readonly number[] {
  const order = Array.from({ length: rows }, (_, row) => row);
  const column = sorting ? columns[sorting.column] : undefined;
  if (!sorting || !column) return order;
  const sign = sorting.isDown ? -1 : 1;
  const values = order.map((row) => column.values.at(row));
  return order.sort((a, b) => sign * compare(values[a], values[b], column.type));
}

/** NULL comes last, as DuckDB has it. */
function compare(a: unknown, b: unknown, type: string): number {
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : 1;
  if (b === null || b === undefined) return -1;
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === "bigint" && typeof b === "bigint") return a < b ? -1 : a > b ? 1 : 0;
  return (formatCell(a, type) ?? "").localeCompare(formatCell(b, type) ?? "");
}
