import { Activity, Boxes, ChartLine, Coins, Cpu, Gavel, Globe, KeyRound, MessageSquare, Plug, Receipt, Server, ShieldCheck, Wrench, type LucideIcon } from "lucide-react";
import type { RoleName } from "@/api/schema";

export interface PageLink {
  path: string;
  name: string;
  /** For the bottom bar of a phone. */
  shortName?: string;
  icon: LucideIcon;
  group: "The network" | "Use it" | "Lend a GPU";
  /** Shown to operators of the network only. */
  isForOperators?: boolean;
  /** In the bottom bar of a phone; the other pages are in its menu. */
  isMain?: boolean;
}

const PAGES: PageLink[] = [
  { path: "/", name: "Network", icon: Globe, group: "The network", isMain: true },
  { path: "/matching", name: "Live matching", shortName: "Matching", icon: Activity, group: "The network", isMain: true },
  { path: "/models", name: "Models", icon: Boxes, group: "The network" },
  { path: "/nodes", name: "Nodes", icon: Cpu, group: "The network" },
  { path: "/market", name: "Market", icon: Gavel, group: "The network" },
  { path: "/validators", name: "Validators", icon: ShieldCheck, group: "The network" },
  { path: "/status", name: "Status", icon: ChartLine, group: "The network" },
  { path: "/operate", name: "Operate", icon: Wrench, group: "The network", isForOperators: true },
  { path: "/playground", name: "Playground", icon: MessageSquare, group: "Use it", isMain: true },
  { path: "/keys", name: "Keys", icon: KeyRound, group: "Use it" },
  { path: "/usage", name: "Usage", icon: Receipt, group: "Use it" },
  { path: "/leases", name: "Leases", icon: Server, group: "Use it" },
  { path: "/join", name: "Join", icon: Plug, group: "Lend a GPU", isMain: true },
  { path: "/earnings", name: "Earnings", icon: Coins, group: "Lend a GPU" },
];

/** The pages that somebody of this role is shown; undefined for a visitor. */
export function pagesFor(role: RoleName | undefined): PageLink[] {
  return PAGES.filter((page) => !page.isForOperators || role === "operator");
}

/** Whether `current`, the path of the address, is this page or below it. */
export function isCurrent(path: string, current: string): boolean {
  return path === "/" ? current === "/" : current === path || current.startsWith(`${path}/`);
}
