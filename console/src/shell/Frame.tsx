// The frame around all pages: navigation, warehouse, who looks, and the command palette.
import { onlineManager, useQuery } from "@tanstack/react-query";
import { Link, Outlet, useLocation, useNavigate, useParams } from "@tanstack/react-router";
import { LogOut, Menu, Monitor, Moon, Search, Sun } from "lucide-react";
import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import { FIRST_WAREHOUSE } from "../api/address.ts";
import { callerQuery, warehousesQuery } from "../api/queries.ts";
import { currentToken, signOut } from "../api/session.ts";
import { Logo } from "./Logo.tsx";
import { Palette } from "./Palette.tsx";
import { ADMINISTRATION, type Section, SECTIONS, sectionsFor } from "./sections.ts";
import { chooseTheme, type Theme, useTheme } from "./theme.ts";

export function Frame() {
  const warehouse = useWarehouse();
  const [isOpen, setOpen] = useState(false);
  const [isFinding, setFinding] = useState(false);
  const { pathname } = useLocation();
  const main = useRef<HTMLElement>(null);
  useEffect(() => setOpen(false), [pathname]);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setFinding((shown) => !shown);
      } else if (event.key === "/" && !isTyping(event.target)) {
        event.preventDefault();
        setFinding(true);
      } else if (event.key === "Escape") {
        setOpen(false);
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  return (
    <div className="frame">
      <a href="#main" className="skip" onClick={() => main.current?.focus()}>
        Skip to the page
      </a>
      <header className="top">
        <button
          type="button"
          className="button only-icon"
          aria-label="Navigation"
          aria-expanded={isOpen}
          onClick={() => setOpen(true)}
        >
          <Menu className="icon" aria-hidden />
        </button>
        <Brand warehouse={warehouse} />
        <button type="button" className="button only-icon" aria-label="Find" onClick={() => setFinding(true)}>
          <Search className="icon" aria-hidden />
        </button>
      </header>
      {isOpen ? (
        <button type="button" className="veil" aria-label="Close navigation" onClick={() => setOpen(false)} />
      ) : null}
      <aside className={isOpen ? "side open" : "side"} aria-label="Navigation">
        <Brand warehouse={warehouse} />
        <button type="button" className="find" onClick={() => setFinding(true)}>
          <Search className="icon" aria-hidden /> Find <kbd>Ctrl K</kbd>
        </button>
        <Warehouses warehouse={warehouse} />
        <Sections warehouse={warehouse} />
        <Foot warehouse={warehouse} />
      </aside>
      <main id="main" className="page" ref={main} tabIndex={-1}>
        <Offline />
        <Outlet />
      </main>
      {isFinding ? <Palette warehouse={warehouse} close={() => setFinding(false)} /> : null}
    </div>
  );
}

/** What can't be asked now is asked as soon as the network is back. */
function Offline() {
  const isOnline = useSyncExternalStore(
    (listener) => onlineManager.subscribe(listener),
    () => onlineManager.isOnline(),
  );
  if (isOnline) return null;
  return (
    <p className="banner bad offline" role="status">
      No network. What is shown may be old; the page goes on by itself once the network is back.
    </p>
  );
}

export function useWarehouse(): string {
  const { warehouse } = useParams({ strict: false });
  return warehouse ?? FIRST_WAREHOUSE;
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable=true]") !== null;
}

function Brand({ warehouse }: { warehouse: string }) {
  return (
    <Link to="/w/$warehouse" params={{ warehouse }} className="brand">
      <Logo /> duckicelake
    </Link>
  );
}

function Warehouses({ warehouse }: { warehouse: string }) {
  const { data: caller } = useQuery(callerQuery(warehouse));
  const { data } = useQuery(warehousesQuery(caller?.["is-admin"] ?? false));
  const navigate = useNavigate();
  const names = [FIRST_WAREHOUSE, ...(data?.warehouses ?? []).map(({ name }) => name)];
  if (names.length === 1 && warehouse === FIRST_WAREHOUSE) return null;
  return (
    <label className="field">
      <span className="hidden-text">Warehouse</span>
      <select
        value={warehouse}
        onChange={({ target }) => void navigate({ to: "/w/$warehouse", params: { warehouse: target.value } })}
      >
        {[...new Set([...names, warehouse])].map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </label>
  );
}

function Sections({ warehouse }: { warehouse: string }) {
  const { data: caller } = useQuery(callerQuery(warehouse));
  const administration = sectionsFor(ADMINISTRATION, caller);
  return (
    <nav aria-label="Pages">
      <SectionLinks warehouse={warehouse} sections={sectionsFor(SECTIONS, caller)} />
      {administration.length > 0 ? <h2>Administration</h2> : null}
      <SectionLinks warehouse={warehouse} sections={administration} />
    </nav>
  );
}

function SectionLinks({ warehouse, sections }: { warehouse: string; sections: readonly Section[] }) {
  const folder = useLocation().pathname.split("/")[3];
  return sections.map(({ to, name, Icon, isExact, also }) => (
    <Link
      key={to}
      to={to}
      params={{ warehouse }}
      className={also !== undefined && also === folder ? "active" : ""}
      activeProps={{ className: "active" }}
      activeOptions={{ exact: isExact ?? false, includeSearch: false }}
    >
      <Icon className="icon" aria-hidden /> {name}
    </Link>
  ));
}

const THEMES: readonly { readonly theme: Theme; readonly name: string; readonly Icon: typeof Sun }[] = [
  { theme: "system", name: "As the system", Icon: Monitor },
  { theme: "light", name: "Light", Icon: Sun },
  { theme: "dark", name: "Dark", Icon: Moon },
];

function Foot({ warehouse }: { warehouse: string }) {
  const { data: caller } = useQuery(callerQuery(warehouse));
  const theme = useTheme();
  const shown = THEMES.find((one) => one.theme === theme) ?? THEMES[0]!;
  const next = THEMES[(THEMES.indexOf(shown) + 1) % THEMES.length]!;
  return (
    <div className="foot">
      <div className="who">
        <Link
          to="/w/$warehouse/you"
          params={{ warehouse }}
          title={caller ? `${caller.principal}, with the scopes ${caller.scopes.join(" ")}` : undefined}
        >
          {caller ? (caller["is-authenticated"] ? caller.principal : "No login needed") : "…"}
        </Link>
        <button
          type="button"
          className="button only-icon"
          title={`Colours: ${shown.name.toLowerCase()}. Click for ${next.name.toLowerCase()}`}
          aria-label={`Colours: ${shown.name.toLowerCase()}`}
          onClick={() => chooseTheme(next.theme)}
        >
          <shown.Icon className="icon" aria-hidden />
        </button>
        {currentToken() === null ? null : (
          <button type="button" className="button only-icon" title="Sign out" aria-label="Sign out" onClick={signOut}>
            <LogOut className="icon" aria-hidden />
          </button>
        )}
      </div>
    </div>
  );
}
