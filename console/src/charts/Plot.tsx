// One column against another: bars where one names things, a line where both are numbers or times.
import { scaleBand, scaleLinear } from "d3-scale";
import { line } from "d3-shape";
import { formatShort } from "../parts/format.ts";
import { useWidth } from "./useWidth.ts";

export interface Point {
  readonly label: string;
  /** Where it stands, if that is a number or a time. */
  readonly at: number | null;
  readonly value: number;
}

const HEIGHT = 320;
const MARGIN = { top: 12, right: 12, bottom: 44, left: 62 };
const MOST_BARS = 60;
const LABEL_PX = 74;
const LINE_LABEL_PX = 190;

export function Plot({ points, title }: { points: readonly Point[]; title: string }) {
  const [place, width] = useWidth();
  const known = points.filter(({ value }) => Number.isFinite(value));
  const isLine = known.length > 1 && known.every(({ at }) => at !== null && Number.isFinite(at));
  const shown = isLine ? [...known].sort((a, b) => (a.at ?? 0) - (b.at ?? 0)) : known.slice(0, MOST_BARS);
  const values = shown.map(({ value }) => value);
  const y = scaleLinear([Math.min(0, ...values), Math.max(0, ...values)], [HEIGHT - MARGIN.bottom, MARGIN.top]).nice();
  const description = shown
    .slice(0, 20)
    .map(({ label, value }) => `${label}: ${value}`)
    .join("; ");
  if (shown.length === 0) return <p className="quiet">There are no numbers to draw.</p>;
  return (
    <div ref={place}>
      <svg
        className="chart"
        height={HEIGHT}
        viewBox={`0 0 ${width} ${HEIGHT}`}
        role="img"
        aria-label={`${title}. ${description}`}
      >
        <g className="axis">
          {y.ticks(5).map((tick) => (
            <g key={tick}>
              <line x1={MARGIN.left} x2={width - MARGIN.right} y1={y(tick)} y2={y(tick)} />
              <text x={MARGIN.left - 8} y={y(tick) + 4} textAnchor="end">
                {formatShort(tick)}
              </text>
            </g>
          ))}
        </g>
        {isLine ? <Line points={shown} y={y} width={width} /> : <Bars points={shown} y={y} width={width} />}
      </svg>
      {!isLine && known.length > shown.length ? <p className="small quiet">The first {MOST_BARS} rows.</p> : null}
    </div>
  );
}

interface MarkProps {
  readonly points: readonly Point[];
  readonly y: (value: number) => number;
  readonly width: number;
}

function Bars({ points, y, width }: MarkProps) {
  const keys = points.map((_, number) => String(number));
  const x = scaleBand(keys, [MARGIN.left, width - MARGIN.right]).padding(0.2);
  const each = Math.max(1, Math.ceil(LABEL_PX / Math.max(x.step(), 1)));
  return points.map(({ label, value }, number) => {
    const left = x(String(number)) ?? 0;
    return (
      <g key={number}>
        <rect
          className="bar"
          x={left}
          width={x.bandwidth()}
          y={Math.min(y(value), y(0))}
          height={Math.abs(y(value) - y(0))}
        >
          <title>{`${label}: ${value}`}</title>
        </rect>
        {number % each === 0 ? (
          <text x={left + x.bandwidth() / 2} y={HEIGHT - MARGIN.bottom + 18} textAnchor="middle">
            {label.length > 14 ? `${label.slice(0, 13)}…` : label}
          </text>
        ) : null}
      </g>
    );
  });
}

function Line({ points, y, width }: MarkProps) {
  const places = points.map(({ at }) => at ?? 0);
  const x = scaleLinear([places[0] ?? 0, places.at(-1) ?? 1], [MARGIN.left, width - MARGIN.right]);
  const path = line<Point>(
    ({ at }) => x(at ?? 0),
    ({ value }) => y(value),
  )(points as Point[]);
  const each = Math.max(1, Math.ceil(points.length / Math.max(1, Math.floor(width / LINE_LABEL_PX))));
  return (
    <>
      <path d={path ?? ""} fill="none" stroke="var(--mark-1)" strokeWidth={2} />
      {points.map(({ label, at, value }, number) => (
        <g key={number}>
          {points.length <= 200 ? (
            <circle cx={x(at ?? 0)} cy={y(value)} r={3} className="bar">
              <title>{`${label}: ${value}`}</title>
            </circle>
          ) : null}
          {number % each === 0 ? (
            <text x={x(at ?? 0)} y={HEIGHT - MARGIN.bottom + 18} textAnchor={anchorOf(x(at ?? 0), width)}>
              {label.slice(0, 25)}
            </text>
          ) : null}
        </g>
      ))}
    </>
  );
}

/** Labels at the edges grow inwards. */
function anchorOf(x: number, width: number): "start" | "middle" | "end" {
  if (x < LINE_LABEL_PX / 2) return "start";
  return x > width - LINE_LABEL_PX / 2 ? "end" : "middle";
}
