// The live feed as the gateway sends it, and as the page keeps it.
import type { StateName, Totals } from "@/api/types";

export interface FeedNode {
  number: number;
  handle: string;
  region: string;
  lon: number | null;
  lat: number | null;
  vramGb: number;
  gpuClass: string;
  gpus: number;
  state: StateName;
}

export interface FeedMatch {
  id: string;
  at: number;
  model: string;
  outcome: string;
  candidates: number;
  eligible: number;
  nodes: number[];
  region: string | null;
  size: string;
  first_token_ms: number | null;
  moved: number;
}

export type Cells = [
  number,
  string,
  string,
  number | null,
  number | null,
  number,
  string,
  number,
  number,
];

export interface Snapshot {
  at: number;
  states: StateName[];
  nodes: Cells[];
  totals: Totals;
  matches: FeedMatch[];
}

export interface Delta {
  at: number;
  totals: Totals;
  added?: Cells[];
  nodes?: number[];
  matches?: FeedMatch[];
  more_matches?: number;
}

export function nodeOf(cells: Cells, states: StateName[]): FeedNode {
  const [number, handle, region, lon, lat, vramGb, gpuClass, gpus, state] = cells;
  return { number, handle, region, lon, lat, vramGb, gpuClass, gpus, state: states[state] ?? "offline" };
}
