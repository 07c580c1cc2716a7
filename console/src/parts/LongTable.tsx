// A table of any number of rows: as many in the page as are seen.
import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useEffect, useRef } from "react";

export interface Column<T> {
  readonly name: string;
  readonly show: (row: T) => ReactNode;
  readonly kind?: "number" | "hidden";
}

const ROW_PX = 36;
const AHEAD = 20;

export function LongTable<T>({
  name,
  rows,
  columns,
  keyOf,
  reachEnd,
  isGrid = false,
}: {
  name: string;
  rows: readonly T[];
  columns: readonly Column<T>[];
  keyOf: (row: T) => string;
  /** Called when the last rows are seen: more of them may be there. */
  reachEnd?: () => void;
  /** Its cells are compared down its columns, so it stays a table on narrow screens. */
  isGrid?: boolean;
}) {
  const scroll = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
    getItemKey: (place) => keyOf(rows[place]!),
  });
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (last >= rows.length - AHEAD) reachEnd?.();
  }, [last, rows.length]);
  const above = items[0]?.start ?? 0;
  const below = virtual.getTotalSize() - (items.at(-1)?.end ?? 0);
  return (
    <div
      className={`scroll tall long-table${isGrid ? "" : " cards"}`}
      ref={scroll}
      tabIndex={0}
      role="group"
      aria-label={name}
    >
      <table aria-rowcount={rows.length + 1}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.name} scope="col" className={column.kind === "number" ? "number" : ""}>
                {column.kind === "hidden" ? <span className="hidden-text">{column.name}</span> : column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {above > 0 ? <Spacer span={columns.length} height={above} /> : null}
          {items.map(({ index, key }) => {
            const row = rows[index];
            if (row === undefined) return null;
            return (
              <tr key={key} data-index={index} ref={virtual.measureElement} aria-rowindex={index + 2}>
                {columns.map((column) => (
                  <td
                    key={column.name}
                    className={column.kind === undefined ? "" : "number"}
                    data-name={column.kind === "hidden" ? undefined : column.name}
                  >
                    {column.show(row)}
                  </td>
                ))}
              </tr>
            );
          })}
          {below > 0 ? <Spacer span={columns.length} height={below} /> : null}
        </tbody>
      </table>
    </div>
  );
}

function Spacer({ span, height }: { span: number; height: number }) {
  return (
    <tr className="spacer" aria-hidden>
      <td colSpan={span} style={{ height }} />
    </tr>
  );
}
