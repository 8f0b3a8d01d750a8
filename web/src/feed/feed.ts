// Keeps one connection to the feed and what it told: the nodes, the totals, the last matches. Everybody reads from here.
// The browser reconnects by itself and says what it has; only a refused connection is tried again by hand.
import type { StateName, Totals } from "@/api/types";
import { nodeOf, type Delta, type FeedMatch, type FeedNode, type Snapshot } from "./model";

const MATCHES_KEPT = 200;
const AGAIN_MS = 5_000;

export type FeedEvent =
  | { kind: "job"; match: FeedMatch; node: number }
  | { kind: "turned"; node: FeedNode; before: StateName };

export interface FeedView {
  connected: boolean;
  totals: Totals | null;
  matches: FeedMatch[];
  nodeCount: number;
  nodesVersion: number;
}

type Listener = () => void;

class Feed {
  readonly nodes = new Map<number, FeedNode>();
  private states: StateName[] = [];
  private source: EventSource | null = null;
  private again: number | undefined;
  private listeners = new Set<Listener>();
  private watchers = new Set<(event: FeedEvent) => void>();
  view: FeedView = { connected: false, totals: null, matches: [], nodeCount: 0, nodesVersion: 0 };

  subscribe = (listener: Listener): (() => void) => {
    this.listeners.add(listener);
    if (this.source === null) this.open();
    return () => this.listeners.delete(listener);
  };

  watch(watcher: (event: FeedEvent) => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  private open(): void {
    window.clearTimeout(this.again);
    const source = new EventSource("/v1/feed");
    this.source = source;
    source.addEventListener("snapshot", (event) => this.onSnapshot(JSON.parse(event.data)));
    source.addEventListener("delta", (event) => this.onDelta(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      this.show({ connected: false });
      if (source.readyState === EventSource.CLOSED) this.again = window.setTimeout(() => this.open(), AGAIN_MS);
    });
  }

  private onSnapshot(said: Snapshot): void {
    this.states = said.states;
    this.nodes.clear();
    for (const cells of said.nodes) this.nodes.set(cells[0], nodeOf(cells, said.states));
    this.show({ connected: true, totals: said.totals, matches: said.matches, ...this.counted() });
  }

  private onDelta(said: Delta): void {
    for (const cells of said.added ?? []) this.nodes.set(cells[0], nodeOf(cells, this.states));
    this.turn(said.nodes ?? []);
    const changed = said.added || said.nodes ? this.counted() : {};
    const matches = said.matches ? this.merged(said.matches) : this.view.matches;
    this.show({ connected: true, totals: said.totals, matches, ...changed });
  }

  private turn(pairs: number[]): void {
    for (let at = 0; at + 1 < pairs.length; at += 2) {
      const node = this.nodes.get(pairs[at] as number);
      const state = this.states[pairs[at + 1] as number];
      if (!node || !state) continue;
      const before = node.state;
      node.state = state;
      this.tell({ kind: "turned", node, before });
    }
  }

  private merged(fresh: FeedMatch[]): FeedMatch[] {
    const known = new Map(this.view.matches.map((match) => [match.id, match]));
    const added: FeedMatch[] = [];
    for (const match of fresh) {
      const before = known.get(match.id);
      const node = match.nodes.at(-1);
      if (node !== undefined && before?.nodes.at(-1) !== node) this.tell({ kind: "job", match, node });
      if (before) known.set(match.id, match);
      else added.unshift(match);
    }
    return [...added, ...known.values()].slice(0, MATCHES_KEPT);
  }

  private counted(): Pick<FeedView, "nodeCount" | "nodesVersion"> {
    return { nodeCount: this.nodes.size, nodesVersion: this.view.nodesVersion + 1 };
  }

  private tell(event: FeedEvent): void {
    for (const watcher of this.watchers) watcher(event);
  }

  private show(changed: Partial<FeedView>): void {
    this.view = { ...this.view, ...changed };
    for (const listener of this.listeners) listener();
  }
}

export const feed = new Feed();
