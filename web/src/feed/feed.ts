// The one connection to the live feed (server-sent events) and the state that its events add up to. Components read the
// state with `useFeed`; the map also listens to single events. A browser reconnects an EventSource by itself, except
// after a refusal: then the page opens a new one.
import type { FeedAuction, FeedDelta, FeedMatch, FeedSnapshot, NetworkTotals, NodeStateName } from "@/api/schema";
import { decodeNode, type LiveNode } from "./liveNode";

const MATCHES_MAX = 200;
const RECONNECT_MS = 5_000;

export type FeedEvent = { kind: "job_sent"; node: number } | { kind: "state_changed"; node: LiveNode };

export interface FeedState {
  connected: boolean;
  totals: NetworkTotals | null;
  matches: FeedMatch[];
  /** Of lease orders, the latest first. */
  auctions: FeedAuction[];
  nodeCount: number;
  /** Grows with every change of a node. */
  nodesVersion: number;
}

type FeedEventListener = (event: FeedEvent) => void;

class Feed {
  readonly nodes = new Map<number, LiveNode>();
  state: FeedState = { connected: false, totals: null, matches: [], auctions: [], nodeCount: 0, nodesVersion: 0 };
  private stateNames: NodeStateName[] = [];
  private source: EventSource | null = null;
  private stateListeners = new Set<() => void>();
  private eventListeners = new Set<FeedEventListener>();

  subscribe = (listener: () => void): (() => void) => {
    this.stateListeners.add(listener);
    if (this.source === null) this.open();
    return () => this.stateListeners.delete(listener);
  };

  listen(listener: FeedEventListener): () => void {
    this.eventListeners.add(listener);
    return () => this.eventListeners.delete(listener);
  }

  private open(): void {
    const source = new EventSource("/v1/feed");
    this.source = source;
    source.addEventListener("snapshot", (event) => this.onSnapshot(JSON.parse(event.data) as FeedSnapshot));
    source.addEventListener("delta", (event) => this.onDelta(JSON.parse(event.data) as FeedDelta));
    source.addEventListener("error", () => {
      this.update({ connected: false });
      if (source.readyState === EventSource.CLOSED) window.setTimeout(() => this.open(), RECONNECT_MS);
    });
  }

  private onSnapshot({ states, nodes, totals, matches, auctions = [] }: FeedSnapshot): void {
    this.stateNames = states;
    this.nodes.clear();
    for (const cells of nodes) this.nodes.set(cells[0], decodeNode(cells, states));
    this.update({ connected: true, totals, matches, auctions, ...this.nodeCounts() });
  }

  private onDelta({ added, nodes, totals, matches, auctions = this.state.auctions }: FeedDelta): void {
    for (const cells of added ?? []) this.nodes.set(cells[0], decodeNode(cells, this.stateNames));
    this.changeStates(nodes ?? []);
    const counts = added || nodes ? this.nodeCounts() : {};
    this.update({ connected: true, totals, matches: this.mergeMatches(matches ?? []), auctions, ...counts });
  }

  /** `pairs` alternates a node's number and its new state. */
  private changeStates(pairs: number[]): void {
    for (let at = 0; at + 1 < pairs.length; at += 2) {
      const node = this.nodes.get(pairs[at] as number);
      const state = this.stateNames[pairs[at + 1] as number];
      if (!node || !state) continue;
      node.state = state;
      this.emit({ kind: "state_changed", node });
    }
  }

  private mergeMatches(changed: FeedMatch[]): FeedMatch[] {
    if (!changed.length) return this.state.matches;
    const byId = new Map(this.state.matches.map((match) => [match.id, match]));
    const added: FeedMatch[] = [];
    for (const match of changed) {
      const before = byId.get(match.id);
      const node = match.nodes.at(-1) ?? null;
      if (node !== null && before?.nodes.at(-1) !== node) this.emit({ kind: "job_sent", node });
      if (before) byId.set(match.id, match);
      else added.unshift(match);
    }
    return [...added, ...byId.values()].slice(0, MATCHES_MAX);
  }

  private nodeCounts(): Pick<FeedState, "nodeCount" | "nodesVersion"> {
    return { nodeCount: this.nodes.size, nodesVersion: this.state.nodesVersion + 1 };
  }

  private emit(event: FeedEvent): void {
    for (const listener of this.eventListeners) listener(event);
  }

  private update(changed: Partial<FeedState>): void {
    this.state = { ...this.state, ...changed };
    for (const listener of this.stateListeners) listener();
  }
}

export const feed = new Feed();
