import { hierarchy, treemap } from "d3-hierarchy";
import { useWidth } from "./useWidth.ts";

export interface Tile {
  readonly label: string;
  readonly size: number;
  readonly title: string;
  /** 0 to 1: how strongly it is drawn. */
  readonly strength: number;
}

const HEIGHT = 240;
const LABEL_CHAR_PX = 6.6;

/** Areas in proportion to sizes; what a filter doesn't read is pale. */
export function Treemap({ tiles, title }: { tiles: readonly Tile[]; title: string }) {
  const [place, width] = useWidth();
  const root = hierarchy<{ children?: readonly Tile[] } | Tile>({ children: tiles }).sum((node) =>
    "size" in node ? node.size : 0,
  );
  const laid = treemap<{ children?: readonly Tile[] } | Tile>().size([width, HEIGHT]).paddingInner(2)(root);
  const description = tiles
    .slice(0, 20)
    .map((tile) => tile.title)
    .join("; ");
  return (
    <div ref={place}>
      <svg
        className="chart"
        height={HEIGHT}
        viewBox={`0 0 ${width} ${HEIGHT}`}
        role="img"
        aria-label={`${title}. ${description}`}
      >
        {laid.leaves().map(({ data, x0, x1, y0, y1 }, number) => {
          if (!("size" in data)) return null;
          const room = Math.floor((x1 - x0 - 12) / LABEL_CHAR_PX);
          const isNamed = y1 - y0 > 20 && room >= 3;
          const name = data.label.length > room ? `${data.label.slice(0, Math.max(room - 1, 1))}…` : data.label;
          return (
            <g key={number}>
              <rect
                className="tile"
                x={x0}
                y={y0}
                width={x1 - x0}
                height={y1 - y0}
                rx={3}
                fill="var(--mark-1)"
                fillOpacity={0.18 + 0.82 * data.strength}
              >
                <title>{data.title}</title>
              </rect>
              {isNamed ? (
                <text className={data.strength > 0.5 ? "tile-label" : "tile-label pale"} x={x0 + 7} y={y0 + 16}>
                  {name}
                </text>
              ) : null}
            </g>
          );
        })}
      </svg>
    </div>
  );
}
