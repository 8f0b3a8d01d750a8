// Finds pages, models, nodes, keys and matches by name or id. The full id of a match always leads to its page, because
// the lists here hold only the latest ones.
import type { ApiKey, MatchSummary, NetworkModel, Node } from "@/api/schema";
import { shortId } from "@/lib/format";
import { PAGES } from "./pages";

export interface SearchResult {
  kind: string;
  name: string;
  path: string;
}

interface Searchable {
  models: NetworkModel[];
  nodes: Node[];
  keys: ApiKey[];
  matches: MatchSummary[];
}

const RESULTS_MAX = 12;

export function searchResults(text: string, { models, nodes, keys, matches }: Searchable): SearchResult[] {
  const query = text.trim().toLowerCase();
  const all: SearchResult[] = [
    ...PAGES.map(({ name, path }) => ({ kind: "page", name, path })),
    ...models.map(({ id }) => ({ kind: "model", name: id, path: `/models#${encodeURIComponent(id)}` })),
    ...nodes.map(({ id, name }) => ({ kind: `node ${shortId(id)}`, name, path: `/nodes/${id}` })),
    ...keys.map(({ id, name, prefix }) => ({ kind: `key ${prefix}…`, name, path: `/keys#${id}` })),
    ...matches.map(({ match_id, model }) => ({ kind: `request, ${model}`, name: match_id, path: `/matching/${match_id}` })),
  ];
  const results = all.filter((one) => [one.name, one.kind, one.path].some((word) => word.toLowerCase().includes(query)));
  if (/^match_[0-9a-z_]+$/.test(query) && !results.some((one) => one.path.endsWith(query)))
    results.unshift({ kind: "request", name: query, path: `/matching/${query}` });
  return results.slice(0, RESULTS_MAX);
}
