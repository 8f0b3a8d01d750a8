// A node of the live feed as an object; on the wire it is an array.
import type { FeedNode, NodeStateName } from "@/api/schema";

export interface LiveNode {
  number: number;
  handle: string;
  region: string;
  longitude: number | null;
  latitude: number | null;
  vramGb: number;
  gpuClass: string;
  state: NodeStateName;
}

export function decodeNode(cells: FeedNode, states: NodeStateName[]): LiveNode {
  const [number, handle, region, longitude, latitude, vramGb, gpuClass, , state] = cells;
  return { number, handle, region, longitude, latitude, vramGb, gpuClass, state: states[state] ?? "offline" };
}
