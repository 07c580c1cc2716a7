// The pages that the navigation and the command palette lead to.
import {
  ArchiveRestore,
  Boxes,
  Database,
  History as HistoryIcon,
  House,
  KeyRound,
  type LucideIcon,
  MessageCircleQuestion,
  SquareTerminal,
  Users,
  VenetianMask,
} from "lucide-react";
import type { Caller } from "../api/administration.ts";

export interface Section {
  readonly to:
    | "/w/$warehouse"
    | "/w/$warehouse/tables"
    | "/w/$warehouse/sql"
    | "/w/$warehouse/history"
    | "/w/$warehouse/dropped"
    | "/w/$warehouse/warehouses"
    | "/w/$warehouse/people"
    | "/w/$warehouse/grants"
    | "/w/$warehouse/why"
    | "/w/$warehouse/policies";
  readonly name: string;
  readonly Icon: LucideIcon;
  readonly isExact?: boolean;
  /** Whether the caller may see anything there; not given: everyone may. */
  readonly isFor?: (caller: Caller) => boolean;
}

export const SECTIONS: readonly Section[] = [
  { to: "/w/$warehouse", name: "Home", Icon: House, isExact: true },
  { to: "/w/$warehouse/tables", name: "Tables", Icon: Database },
  { to: "/w/$warehouse/sql", name: "SQL", Icon: SquareTerminal },
  { to: "/w/$warehouse/history", name: "History", Icon: HistoryIcon },
  { to: "/w/$warehouse/dropped", name: "Dropped", Icon: ArchiveRestore },
];

const isAdmin = (caller: Caller): boolean => caller["is-admin"];

/** Who may see or manage any: administrators, and where grants are on everyone their own. */
const hasGrants = (caller: Caller): boolean => caller["is-admin"] || caller["grants-on"];

export const ADMINISTRATION: readonly Section[] = [
  { to: "/w/$warehouse/warehouses", name: "Warehouses", Icon: Boxes, isFor: isAdmin },
  { to: "/w/$warehouse/people", name: "People", Icon: Users, isFor: isAdmin },
  { to: "/w/$warehouse/grants", name: "Grants", Icon: KeyRound, isFor: hasGrants },
  { to: "/w/$warehouse/why", name: "Why may she?", Icon: MessageCircleQuestion, isFor: isAdmin },
  { to: "/w/$warehouse/policies", name: "Policies", Icon: VenetianMask, isFor: hasGrants },
];

/** Those that the caller may see anything of. */
export function sectionsFor(sections: readonly Section[], caller: Caller | undefined): readonly Section[] {
  return sections.filter(({ isFor }) => !isFor || (caller !== undefined && isFor(caller)));
}
