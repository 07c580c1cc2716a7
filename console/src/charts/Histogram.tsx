import { scaleLinear } from "d3-scale";
import { formatCount } from "../parts/format.ts";
import { useWidth } from "./useWidth.ts";

export interface Bin {
  readonly label: string;
  readonly count: number;
}

const HEIGHT = 170;
const MARGIN = { top: 18, bottom: 34 };

/** How many there are of each size. A reader of the page gets the same as a list. */
export function Histogram({ bins, title }: { bins: readonly Bin[]; title: string }) {
  const [room, width] = useWidth();
  const most = Math.max(1, ...bins.map(({ count }) => count));
  const y = scaleLinear([0, most], [HEIGHT - MARGIN.bottom, MARGIN.top]);
  const step = width / Math.max(bins.length, 1);
  const description = bins.map(({ label, count }) => `${label}: ${formatCount(count)}`).join("; ");
  return (
    <div ref={room}>
      <svg
        className="chart"
        height={HEIGHT}
        viewBox={`0 0 ${width} ${HEIGHT}`}
        role="img"
        aria-label={`${title}. ${description}`}
      >
        <g className="axis">
          <line x1={0} x2={width} y1={y(0)} y2={y(0)} />
        </g>
        {bins.map(({ label, count }, place) => (
          <g key={label}>
            <rect
              className="bar"
              x={place * step + 3}
              width={Math.max(step - 6, 1)}
              y={y(count)}
              height={y(0) - y(count)}
              rx={2}
            >
              <title>{`${label}: ${formatCount(count)}`}</title>
            </rect>
            {count > 0 ? (
              <text x={place * step + step / 2} y={y(count) - 5} textAnchor="middle">
                {formatCount(count)}
              </text>
            ) : null}
            <text x={place * step + step / 2} y={HEIGHT - MARGIN.bottom + 16} textAnchor="middle">
              {label}
            </text>
          </g>
        ))}
      </svg>
    </div>
  );
}
