// Queries in DuckDB's SQL, with their rows as a grid or a chart.
import { useNavigate, useSearch } from "@tanstack/react-router";
import { Download, Play, Save, Square, Trash2 } from "lucide-react";
import { useCallback, useEffect, useRef, useState } from "react";
import { type QueryResult, runQuery, writeCsv } from "../../api/rows.ts";
import { useAddressText } from "../../parts/addressText.ts";
import { Copy } from "../../parts/Copy.tsx";
import { formatCount, formatDuration, plural } from "../../parts/format.ts";
import { Empty, Trouble, Waiting } from "../../parts/Notice.tsx";
import { ResultGrid } from "../../parts/ResultGrid.tsx";
import { useWarehouse } from "../../shell/Frame.tsx";
import { Editor } from "./Editor.tsx";
import { Keep } from "./Keep.tsx";
import { ResultChart } from "./ResultChart.tsx";
import { forgetQuery, saveQuery, useSavedQueries } from "./saved.ts";
import { useSchema } from "./schema.ts";

const LIMITS = [1000, 10_000, 100_000] as const;

type Outcome =
  | { readonly state: "idle" }
  | { readonly state: "running"; readonly since: number }
  | { readonly state: "done"; readonly result: QueryResult; readonly limit: number }
  | { readonly state: "failed"; readonly error: unknown };

export function Sql() {
  const warehouse = useWarehouse();
  const { q = "" } = useSearch({ from: "/w/$warehouse/sql" });
  const navigate = useNavigate();
  const [text, setText] = useState(q);
  const [limitText, setLimit] = useAddressText("limit", String(LIMITS[0]));
  const limit = LIMITS.find((one) => String(one) === limitText) ?? LIMITS[0];
  const [show, setShow] = useAddressText("show");
  const isChart = show === "chart";
  const [outcome, run, cancel] = useRun(warehouse);
  const schema = useSchema(warehouse, text);
  useEffect(() => setText(q), [q]);
  const start = (isExplain: boolean) => {
    if (!text.trim()) return;
    void navigate({
      to: "/w/$warehouse/sql",
      params: { warehouse },
      search: (before) => ({ ...before, q: text }),
      replace: true,
    });
    void run(text, limit, isExplain);
  };
  const isRunning = outcome.state === "running";
  return (
    <div className="body full">
      <title>SQL · duckicelake</title>
      <h1 className="hidden-text">SQL</h1>
      <div className="sql">
        <div className="bar">
          {isRunning ? (
            <button type="button" className="button" onClick={cancel}>
              <Square className="icon" aria-hidden /> Cancel
            </button>
          ) : (
            <button type="button" className="button primary" onClick={() => start(false)} title="Ctrl Enter">
              <Play className="icon" aria-hidden /> Run
            </button>
          )}
          <button type="button" className="button" disabled={isRunning} onClick={() => start(true)}>
            Explain
          </button>
          <label className="row tight">
            <span className="quiet small">at most</span>
            <select value={limit} onChange={({ target }) => setLimit(target.value)}>
              {LIMITS.map((one) => (
                <option key={one} value={one}>
                  {formatCount(one)} rows
                </option>
              ))}
            </select>
          </label>
          <Saved text={text} choose={setText} />
          {outcome.state === "done" ? <Keep warehouse={warehouse} sql={text} /> : null}
          <Copy text={location.href} what="a link to this query, as it was last run" />
        </div>
        <Editor text={text} schema={schema} change={setText} run={() => start(false)} />
        <ResultBar outcome={outcome} isChart={isChart} setChart={(isOn) => setShow(isOn ? "chart" : "")} />
        <div className="result">
          <Result outcome={outcome} isChart={isChart} />
        </div>
      </div>
    </div>
  );
}

function useRun(warehouse: string) {
  const [outcome, setOutcome] = useState<Outcome>({ state: "idle" });
  const running = useRef<AbortController | null>(null);
  const cancel = useCallback(() => running.current?.abort(), []);
  useEffect(() => cancel, [cancel]);
  const run = async (sql: string, limit: number, explain: boolean) => {
    running.current?.abort();
    const begun = new AbortController();
    running.current = begun;
    setOutcome({ state: "running", since: Date.now() });
    try {
      const result = await runQuery(warehouse, { sql, limit, explain, signal: begun.signal });
      if (running.current === begun) setOutcome({ state: "done", result, limit });
    } catch (error) {
      if (running.current !== begun) return;
      setOutcome(begun.signal.aborted ? { state: "idle" } : { state: "failed", error });
    }
  };
  return [outcome, run, cancel] as const;
}

function Saved({ text, choose }: { text: string; choose: (text: string) => void }) {
  const saved = useSavedQueries();
  const [name, setName] = useState("");
  const known = [...saved].find(([, one]) => one === text)?.[0] ?? "";
  return (
    <>
      {saved.size > 0 ? (
        <select
          aria-label="Saved queries"
          value={known}
          onChange={({ target }) => choose(saved.get(target.value) ?? text)}
        >
          <option value="">Saved queries</option>
          {[...saved.keys()].map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      ) : null}
      {known ? (
        <button
          type="button"
          className="button only-icon"
          aria-label={`Forget ${known}`}
          title={`Forget ${known}`}
          onClick={() => forgetQuery(known)}
        >
          <Trash2 className="icon" aria-hidden />
        </button>
      ) : (
        <form
          className="row tight"
          onSubmit={(event) => {
            event.preventDefault();
            if (name.trim() && text.trim()) saveQuery(name.trim(), text);
            setName("");
          }}
        >
          <input
            aria-label="Name to save it under"
            placeholder="Save as"
            value={name}
            onChange={({ target }) => setName(target.value)}
          />
          <button className="button only-icon" aria-label="Save in this browser" title="Save in this browser">
            <Save className="icon" aria-hidden />
          </button>
        </form>
      )}
    </>
  );
}

function ResultBar({
  outcome,
  isChart,
  setChart,
}: {
  outcome: Outcome;
  isChart: boolean;
  setChart: (is: boolean) => void;
}) {
  const result = outcome.state === "done" ? outcome.result : null;
  return (
    <div className="bar result-bar">
      <span role="status" className="quiet small">
        {outcome.state === "running" ? <Elapsed since={outcome.since} /> : null}
        {outcome.state === "done" ? summary(outcome.result, outcome.limit) : null}
      </span>
      {result && result.rows > 0 ? (
        <>
          <div className="segments" role="group" aria-label="Show as">
            <button type="button" aria-pressed={!isChart} onClick={() => setChart(false)}>
              Rows
            </button>
            <button type="button" aria-pressed={isChart} onClick={() => setChart(true)}>
              Chart
            </button>
          </div>
          <button type="button" className="button small" onClick={() => download(writeCsv(result))}>
            <Download className="icon" aria-hidden /> CSV
          </button>
        </>
      ) : null}
    </div>
  );
}

function summary(result: QueryResult, limit: number): string {
  const rows = result.rows === limit ? `The first ${formatCount(limit)} rows` : plural(result.rows, "row");
  return `${rows} in ${formatDuration(result.seconds)}, of the lake's snapshot ${result.snapshot}`;
}

function Elapsed({ since }: { since: number }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 200);
    return () => clearInterval(timer);
  }, []);
  return <>Running for {formatDuration(Math.max(0, now - since) / 1000)}</>;
}

function Result({ outcome, isChart }: { outcome: Outcome; isChart: boolean }) {
  if (outcome.state === "running") return <Waiting />;
  if (outcome.state === "failed") return <Trouble error={outcome.error} />;
  if (outcome.state === "idle") {
    return (
      <Empty title="One SELECT of DuckDB's SQL">
        <p>
          <kbd>Ctrl Enter</kbd> runs it, over the tables that you may read. The address of this page has the query: a
          link shares it.
        </p>
      </Empty>
    );
  }
  if (outcome.result.rows === 0) return <Empty title="No rows" />;
  return isChart ? <ResultChart result={outcome.result} /> : <ResultGrid result={outcome.result} className="fill" />;
}

function download(text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = "result.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
