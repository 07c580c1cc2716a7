// The pages that the navigation and the command palette lead to.
import {
  ArchiveRestore,
  Boxes,
  Braces,
  Database,
  History as HistoryIcon,
  House,
  KeyRound,
  type LucideIcon,
  MessageCircleQuestion,
  ScrollText,
  SlidersHorizontal,
  SquareTerminal,
  Stethoscope,
  Users,
  VenetianMask,
  Waypoints,
  Wrench,
} from "lucide-react";
import type { Caller } from "../api/administration.ts";

export interface Section {
  readonly to:
    | "/w/$warehouse"
    | "/w/$warehouse/tables"
    | "/w/$warehouse/sql"
    | "/w/$warehouse/history"
    | "/w/$warehouse/dropped"
    | "/w/$warehouse/lineage"
    | "/w/$warehouse/warehouses"
    | "/w/$warehouse/people"
    | "/w/$warehouse/grants"
    | "/w/$warehouse/why"
    | "/w/$warehouse/policies"
    | "/w/$warehouse/audit"
    | "/w/$warehouse/upkeep"
    | "/w/$warehouse/doctor"
    | "/w/$warehouse/settings"
    | "/w/$warehouse/api";
  readonly name: string;
  readonly Icon: LucideIcon;
  readonly isExact?: boolean;
  /** A folder of addresses that belongs to it, too. */
  readonly also?: string;
  /** Whether the caller may see anything there; not given: everyone may. */
  readonly isFor?: (caller: Caller) => boolean;
}

export const SECTIONS: readonly Section[] = [
  { to: "/w/$warehouse", name: "Home", Icon: House, isExact: true },
  { to: "/w/$warehouse/tables", name: "Tables", Icon: Database, also: "views" },
  { to: "/w/$warehouse/sql", name: "SQL", Icon: SquareTerminal },
  { to: "/w/$warehouse/history", name: "History", Icon: HistoryIcon },
  { to: "/w/$warehouse/lineage", name: "Lineage", Icon: Waypoints },
  { to: "/w/$warehouse/dropped", name: "Dropped", Icon: ArchiveRestore },
];

const isAdmin = (caller: Caller): boolean => caller["is-admin"];

/** Who may see or manage any: administrators, and where grants are on everyone their own. */
const hasGrants = (caller: Caller): boolean => caller["is-admin"] || caller["grants-on"];

/** Who may read all of the warehouse, by scopes that are bounded by nothing but grants. */
const mayExamine = ({ actions, scopes, "grants-on": isOn }: Caller): boolean =>
  actions.includes("select") && (scopes.includes("*") || (isOn && scopes.includes("grants")));

export const ADMINISTRATION: readonly Section[] = [
  { to: "/w/$warehouse/warehouses", name: "Warehouses", Icon: Boxes, isFor: isAdmin },
  { to: "/w/$warehouse/people", name: "People", Icon: Users, isFor: isAdmin },
  { to: "/w/$warehouse/grants", name: "Grants", Icon: KeyRound, isFor: hasGrants },
  { to: "/w/$warehouse/why", name: "Why may she?", Icon: MessageCircleQuestion, isFor: isAdmin },
  { to: "/w/$warehouse/policies", name: "Policies", Icon: VenetianMask, isFor: hasGrants },
  {
    to: "/w/$warehouse/audit",
    name: "Audit",
    Icon: ScrollText,
    isFor: ({ actions }) => actions.includes("manage-grants"),
  },
  { to: "/w/$warehouse/upkeep", name: "Upkeep", Icon: Wrench },
  { to: "/w/$warehouse/doctor", name: "Doctor", Icon: Stethoscope, isFor: mayExamine },
  { to: "/w/$warehouse/settings", name: "Settings", Icon: SlidersHorizontal, isFor: isAdmin },
  { to: "/w/$warehouse/api", name: "API", Icon: Braces },
];

/** Those that the caller may see anything of. */
export function sectionsFor(sections: readonly Section[], caller: Caller | undefined): readonly Section[] {
  return sections.filter(({ isFor }) => !isFor || (caller !== undefined && isFor(caller)));
}
