// Finds pages, models, nodes, keys, matches, orders and one's own leases by name or id. The full id of a match or an order
// always leads to its page, because the lists here hold only the latest ones.
import type { ApiKey, Lease, MarketOrder, MatchSummary, NetworkModel, Node } from "@/api/schema";
import { shortId } from "@/lib/format";
import type { PageLink } from "./pages";

export interface SearchResult {
  kind: string;
  name: string;
  path: string;
}

interface Searchable {
  pages: PageLink[];
  models: NetworkModel[];
  nodes: Node[];
  keys: ApiKey[];
  matches: MatchSummary[];
  orders: MarketOrder[];
  leases: Lease[];
}

const RESULTS_MAX = 12;

export function searchResults(text: string, { pages, models, nodes, keys, matches, orders, leases }: Searchable): SearchResult[] {
  const query = text.trim().toLowerCase();
  const all: SearchResult[] = [
    ...pages.map(({ name, path }) => ({ kind: "page", name, path })),
    ...models.map(({ id }) => ({ kind: "model", name: id, path: `/models#${encodeURIComponent(id)}` })),
    ...nodes.map(({ id, name }) => ({ kind: `node ${shortId(id)}`, name, path: `/nodes/${id}` })),
    ...keys.map(({ id, name, prefix }) => ({ kind: `key ${prefix}…`, name, path: `/keys#${id}` })),
    ...matches.map(({ match_id, model }) => ({ kind: `request, ${model}`, name: match_id, path: `/matching/${match_id}` })),
    ...leases.map(({ id, name, phase }) => ({ kind: `lease ${shortId(id)}, ${phase}`, name, path: `/leases/${id}` })),
    ...orders.map(({ id, state }) => ({ kind: `order, ${state}`, name: id, path: `/market/${id}` })),
  ];
  const results = all.filter((one) => [one.name, one.kind, one.path].some((word) => word.toLowerCase().includes(query)));
  if (/^match_[0-9a-z_]+$/.test(query) && !results.some((one) => one.path.endsWith(query)))
    results.unshift({ kind: "request", name: query, path: `/matching/${query}` });
  if (/^0x[0-9a-f]{64}$/.test(query) && !results.length) results.push({ kind: "order", name: query, path: `/market/${query}` });
  return results.slice(0, RESULTS_MAX);
}
