// The lineage of a table, a view or a column: a graph, which code of its own draws, and beside it what is known of a part.
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { useWarehouse } from "../../shell/Frame.tsx";
import { readView, writeView } from "./address.ts";
import { Screen } from "./screen.ts";
import { chooseWarehouse } from "./source.ts";

export function Lineage() {
  const warehouse = useWarehouse();
  const search = useSearch({ from: "/w/$warehouse/lineage" });
  const navigate = useNavigate();
  const screen = useRef<Screen | null>(null);
  const [title, setTitle] = useState("Lineage");
  const written = JSON.stringify(search);
  const shown = useRef(written);
  useEffect(() => {
    chooseWarehouse(warehouse);
    const made = new Screen(readView(search), {
      go: (view) =>
        void navigate({
          to: "/w/$warehouse/lineage",
          params: { warehouse },
          search: writeView(view),
          resetScroll: false,
        }),
      name: setTitle,
    });
    screen.current = made;
    shown.current = written;
    return () => made.close();
  }, [warehouse]);
  useEffect(() => {
    if (shown.current === written) return;
    shown.current = written;
    screen.current?.turn(readView(search));
  }, [written]);
  return (
    <div className="lineage">
      <title>{`${title} · duckicelake`}</title>
      <header className="lineage-bar">
        <h1>Lineage</h1>
        <div className="lineage-search">
          <input
            id="search"
            type="search"
            role="combobox"
            aria-expanded="false"
            aria-controls="found"
            aria-autocomplete="list"
            autoComplete="off"
            spellCheck={false}
            placeholder="Find a table or view"
            aria-label="Find a table or view"
          />
          <ul id="found" role="listbox" aria-label="Tables and views" hidden />
        </div>
        <form id="controls" className="controls">
          <label>
            Show
            <select name="direction">
              <option value="both">all</option>
              <option value="upstream">where it comes from</option>
              <option value="downstream">what is made of it</option>
            </select>
          </label>
          <label>
            Steps <input name="depth" type="number" min="1" max="20" required />
          </label>
          <label>
            As of <input name="at" type="datetime-local" step="1" title="In your time zone; empty: now" />
          </label>
          <label className="check" title="Open all boxes to their columns">
            <input name="columns" type="checkbox" /> Columns
          </label>
          <label className="check" title="Show what reads and writes between the tables">
            <input name="jobs" type="checkbox" defaultChecked /> Jobs
          </label>
        </form>
      </header>
      <div className="lineage-body">
        <section id="canvas" className="canvas" tabIndex={0} aria-label="Graph" />
        <p id="note" className="note" role="status" hidden />
        <div id="overlay" className="overlay" hidden>
          <div className="zoom" role="group" aria-label="Zoom">
            <button type="button" id="zoom-in" aria-label="Larger" title="Larger (+)">
              +
            </button>
            <button type="button" id="zoom-out" aria-label="Smaller" title="Smaller (−)">
              −
            </button>
            <button type="button" id="zoom-fit" title="All of it (0)">
              Fit
            </button>
          </div>
          <ul className="legend" aria-label="Legend">
            <li className="seen">seen by the catalog</li>
            <li className="inferred">inferred</li>
            <li id="indirect" className="indirect" hidden>
              decides: filters, joins, groups
            </li>
          </ul>
        </div>
        <aside id="panel" className="panel" tabIndex={-1} aria-label="About what was chosen" hidden />
      </div>
    </div>
  );
}
