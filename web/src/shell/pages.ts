import { Activity, Boxes, ChartLine, Coins, Cpu, Globe, KeyRound, MessageSquare, Plug, Receipt, type LucideIcon } from "lucide-react";

export interface PageLink {
  path: string;
  name: string;
  /** In the bar of a phone, where a name has little room. */
  shortName?: string;
  icon: LucideIcon;
  group: "The network" | "Use it" | "Lend a GPU";
  /** Stays in the bar of a phone. */
  isMain?: boolean;
}

export const PAGES: PageLink[] = [
  { path: "/", name: "Network", icon: Globe, group: "The network", isMain: true },
  { path: "/matching", name: "Live matching", shortName: "Matching", icon: Activity, group: "The network", isMain: true },
  { path: "/models", name: "Models", icon: Boxes, group: "The network" },
  { path: "/nodes", name: "Nodes", icon: Cpu, group: "The network" },
  { path: "/status", name: "Status", icon: ChartLine, group: "The network" },
  { path: "/playground", name: "Playground", icon: MessageSquare, group: "Use it", isMain: true },
  { path: "/keys", name: "Keys", icon: KeyRound, group: "Use it" },
  { path: "/usage", name: "Usage", icon: Receipt, group: "Use it" },
  { path: "/join", name: "Join", icon: Plug, group: "Lend a GPU", isMain: true },
  { path: "/earnings", name: "Earnings", icon: Coins, group: "Lend a GPU" },
];
