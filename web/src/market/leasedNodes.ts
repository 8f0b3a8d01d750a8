// Which nodes run leases, by the chain: a lease names its provider, and a provider its node's key.
import type { MarketLease, MarketProvider } from "../api/schema.ts";

/** By the node's id: how many of the leases it has now. Those without a provider count for nobody. */
export function leasedNodes(leases: Pick<MarketLease, "provider" | "state">[], providers: Pick<MarketProvider, "id" | "node_key">[]): Map<string, number> {
  const nodeOf = new Map(providers.map(({ id, node_key }) => [id, node_key]));
  const counts = new Map<string, number>();
  for (const { provider, state } of leases) {
    const node = provider && nodeOf.get(provider);
    if (node && state !== "closed") counts.set(node, (counts.get(node) ?? 0) + 1);
  }
  return counts;
}
