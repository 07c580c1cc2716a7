// The pages that the navigation and the command palette lead to.
import { Database, House, type LucideIcon } from "lucide-react";

export interface Section {
  readonly to: "/w/$warehouse" | "/w/$warehouse/tables";
  readonly name: string;
  readonly Icon: LucideIcon;
  readonly isExact?: boolean;
  readonly isForAdmins?: boolean;
}

export const SECTIONS: readonly Section[] = [
  { to: "/w/$warehouse", name: "Home", Icon: House, isExact: true },
  { to: "/w/$warehouse/tables", name: "Tables", Icon: Database },
];
