// One match as each validator recorded it: the bids in its signed lists and the result it voted for in each round, side by
// side, so that one sees at once whether all of them recorded the same.
import type { LeaseMatch, MatchListEntry, MatchVoter } from "../api/schema.ts";
import { plural } from "../lib/format.ts";

export interface ReplayCell {
  /** Null: nothing signed is known. */
  text: string | null;
  /** Whether it is what most of the others have; null if there is nothing to compare. */
  isSame: boolean | null;
  title: string;
  /** Of a list that is not like most: whose bids it lacks, and whose it has besides. */
  lacks: string[];
  besides: string[];
}

export interface ReplayRow {
  name: string;
  cells: ReplayCell[];
}

export interface ReplayTable {
  voters: MatchVoter[];
  rows: ReplayRow[];
  /** Whether every vote of the certificate's round that is known has its digest; null without a certificate. */
  agrees: boolean | null;
  /** Whether a vote of another round is for another result, which honest validators may give: a proposal need not have bids
   * that too few of them listed. */
  hasOtherRound: boolean;
}

const DIGEST_CHARS = 10;
const NO_DIFFERENCE = { lacks: [], besides: [] };

export function sideBySide(match: LeaseMatch): ReplayTable {
  const { voters, votes, certificate } = match;
  const rounds = [...new Set(votes.map(({ round }) => round))].sort((a, b) => a - b);
  const rows = [listRow("Bids listed as sealed", "commit", match), listRow("Bids listed as opened", "reveal", match), ...rounds.map((round) => voteRow(round, match))];
  const differing = certificate ? votes.filter(({ task_digest }) => task_digest !== certificate.task_digest) : [];
  const agrees = certificate && differing.every(({ round }) => round !== certificate.round);
  return { voters, rows, agrees, hasOtherRound: differing.some(({ round }) => round !== certificate?.round) };
}

function listRow(name: string, kind: MatchListEntry["kind"], { voters, lists, bids }: LeaseMatch): ReplayRow {
  const found = voters.map(({ vote_key }) => lists.filter((list) => list.kind === kind && list.validator === vote_key).map(({ bid_ids }) => [...bid_ids].sort()));
  const usual = mostFrequent(found.flat().map((ids) => ids.join()))?.split(",").filter(Boolean) ?? [];
  const bidders = new Map(bids.map(({ bid_id, provider }) => [bid_id, provider]));
  const named = (ids: string[], without: string[]) => ids.filter((id) => !without.includes(id)).map((id) => bidders.get(id) ?? id);
  return row(
    name,
    found,
    (ids) => ({ text: plural(ids.length, "bid"), title: ids.join("\n") || "no bid", lacks: named(usual, ids), besides: named(ids, usual) }),
    (ids) => ids.join(),
  );
}

function voteRow(round: number, { voters, votes, certificate }: LeaseMatch): ReplayRow {
  return row(
    `Vote in round ${round + 1}`,
    voters.map(({ vote_key }) => [...new Set(votes.filter((vote) => vote.round === round && vote.validator === vote_key).map(({ task_digest }) => task_digest))]),
    (digest) => ({ text: digest.slice(0, DIGEST_CHARS), title: digest, ...NO_DIFFERENCE }),
    (digest) => digest,
    certificate?.round === round ? certificate.task_digest : undefined,
  );
}

/** `found` has what each voter signed, which is one thing unless it signs two. `expected` is the result; else the most frequent is. */
function row<T>(name: string, found: T[][], show: (one: T) => Omit<ReplayCell, "isSame">, keyOf: (one: T) => string, expected?: string): ReplayRow {
  const usual = expected ?? mostFrequent(found.flat().map(keyOf));
  const cells = found.map((signed): ReplayCell => {
    const [first] = signed;
    if (first === undefined) return { text: null, isSame: null, title: "Nothing signed is known", ...NO_DIFFERENCE };
    if (signed.length > 1) return { text: `${signed.length} different`, isSame: false, title: signed.map((one) => show(one).title).join("\n\n"), ...NO_DIFFERENCE };
    return { ...show(first), isSame: keyOf(first) === usual };
  });
  return { name, cells };
}

function mostFrequent(keys: string[]): string | undefined {
  const counts = new Map<string, number>();
  for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
  return [...counts].sort(([a, x], [b, y]) => y - x || a.localeCompare(b))[0]?.[0];
}
