// What a search finds. A whole id of a match opens, also one that is in no list here.
import type { ApiKey, MatchLine, NetworkModel, Node } from "@/api/types";
import { PAGES } from "./pages";

export interface Found {
  kind: string;
  name: string;
  path: string;
}

interface Known {
  models: NetworkModel[];
  nodes: Node[];
  keys: ApiKey[];
  matches: MatchLine[];
}

const MOST = 12;

export function found(text: string, known: Known): Found[] {
  const wanted = text.trim().toLowerCase();
  const all: Found[] = [
    ...PAGES.map((page) => ({ kind: "page", name: page.name, path: page.path })),
    ...known.models.map((model) => ({ kind: "model", name: model.id, path: `/models#${encodeURIComponent(model.id)}` })),
    ...known.nodes.map((node) => ({ kind: `node ${node.id.slice(0, 10)}…`, name: node.name, path: `/nodes/${node.id}` })),
    ...known.keys.map((key) => ({ kind: `key ${key.prefix}…`, name: key.name, path: `/keys#${key.id}` })),
    ...known.matches.map((match) => ({ kind: `request, ${match.model}`, name: match.match_id, path: `/matching/${match.match_id}` })),
  ];
  const hits = all.filter((one) => [one.name, one.kind, one.path].some((word) => word.toLowerCase().includes(wanted)));
  if (/^match_[0-9a-z_]+$/.test(wanted) && !hits.some((one) => one.path.endsWith(wanted)))
    hits.unshift({ kind: "request", name: wanted, path: `/matching/${wanted}` });
  return hits.slice(0, MOST);
}
