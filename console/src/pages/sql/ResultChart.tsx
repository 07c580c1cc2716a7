import { useMemo } from "react";
import { formatCell, measure, type QueryResult, type ResultColumn } from "../../api/rows.ts";
import { useAddressText } from "../../parts/addressText.ts";
import { Plot, type Point } from "../../charts/Plot.tsx";

const MOST_POINTS = 5000;

/** A column of numbers against another one; the reader chooses which. */
export function ResultChart({ result }: { result: QueryResult }) {
  const numbers = result.columns.filter(({ isNumber }) => isNumber);
  const [along, setAlong] = useAddressText("along", result.columns[0]?.name);
  const [value, setValue] = useAddressText("value", (numbers.find(({ name }) => name !== along) ?? numbers[0])?.name);
  const x = result.columns.find(({ name }) => name === along) ?? result.columns[0];
  const y = numbers.find(({ name }) => name === value) ?? numbers[0];
  const points = useMemo(() => (x && y ? pointsOf(result, x, y) : []), [result, x, y]);
  if (!x || !y) return <p className="inside quiet">A chart takes a column of numbers, and this result has none.</p>;
  return (
    <div className="inside stack">
      <div className="row">
        <label className="row tight">
          <span className="quiet small">Along</span>
          <select value={x.name} onChange={({ target }) => setAlong(target.value)}>
            {result.columns.map(({ name }, place) => (
              <option key={place}>{name}</option>
            ))}
          </select>
        </label>
        <label className="row tight">
          <span className="quiet small">Value</span>
          <select value={y.name} onChange={({ target }) => setValue(target.value)}>
            {numbers.map(({ name }, place) => (
              <option key={place}>{name}</option>
            ))}
          </select>
        </label>
      </div>
      <Plot title={`${y.name} by ${x.name}`} points={points} />
    </div>
  );
}

function pointsOf(result: QueryResult, x: ResultColumn, y: ResultColumn): readonly Point[] {
  const isPlace = x.isNumber || x.type === "date" || x.type.startsWith("timestamp");
  return Array.from({ length: Math.min(result.rows, MOST_POINTS) }, (_, row) => ({
    label: formatCell(x.values.at(row), x.type) ?? "NULL",
    at: isPlace ? measure(x.values.at(row), x.type) : null,
    value: measure(y.values.at(row), y.type),
  }));
}
