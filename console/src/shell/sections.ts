// The pages that the navigation and the command palette lead to.
import { ArchiveRestore, Database, History as HistoryIcon, House, type LucideIcon, SquareTerminal } from "lucide-react";

export interface Section {
  readonly to:
    "/w/$warehouse" | "/w/$warehouse/tables" | "/w/$warehouse/sql" | "/w/$warehouse/history" | "/w/$warehouse/dropped";
  readonly name: string;
  readonly Icon: LucideIcon;
  readonly isExact?: boolean;
  readonly isForAdmins?: boolean;
}

export const SECTIONS: readonly Section[] = [
  { to: "/w/$warehouse", name: "Home", Icon: House, isExact: true },
  { to: "/w/$warehouse/tables", name: "Tables", Icon: Database },
  { to: "/w/$warehouse/sql", name: "SQL", Icon: SquareTerminal },
  { to: "/w/$warehouse/history", name: "History", Icon: HistoryIcon },
  { to: "/w/$warehouse/dropped", name: "Dropped", Icon: ArchiveRestore },
];
