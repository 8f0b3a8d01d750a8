// The phases of an auction, as steps with a countdown. Times are estimates: each validator has its own clock, and the
// chain's seconds are coarse.
import type { LeaseMatch, MarketOrder, MatchPhaseName } from "../api/schema.ts";
import { plural } from "../lib/format.ts";

export type StepState = "done" | "now" | "waiting" | "nobody" | "failed";

export interface PhaseStep {
  name: string;
  state: StepState;
  note: string;
}

/** By the step that runs in each; the first one, the lookup, is over when anything is known of an attempt. */
const STEPS: MatchPhaseName[] = ["commit", "reveal", "vote", "certified"];
const NAMES = ["Lookup", "Bids sealed", "Bids opened", "Votes", "Certificate"];

export function isRunning(phase: MatchPhaseName): boolean {
  return STEPS.includes(phase);
}

/** Milliseconds left of what ends `endsInMs` after `seenMs`; null if that is not known. */
export function leftMs(endsInMs: number | null, seenMs: number, nowMs: number): number | null {
  return endsInMs === null ? null : Math.max(0, endsInMs - (nowMs - seenMs));
}

/** Tenths of a second below ten, whole seconds above. */
export function countdown(ms: number): string {
  return ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.ceil(ms / 1000)} s`;
}

/** The steps of an attempt: lookup, sealed bids, opened bids, votes, certificate on the chain. */
export function phaseSteps(match: LeaseMatch, left: number | null): PhaseStep[] {
  const { phase, order } = match;
  const at = isRunning(phase.name) ? STEPS.indexOf(phase.name) + 1 : NAMES.length;
  const lengths = [undefined, order.commit_ms, order.reveal_ms];
  const notes = stepNotes(match);
  return NAMES.map((name, step) => {
    const state: StepState = step < at ? "done" : step === at ? "now" : "waiting";
    const time = state === "now" ? timeLeft(phase.name, left) : state === "waiting" && lengths[step] ? countdown(lengths[step]) : null;
    return { name, state: step === NAMES.length - 1 ? lastState(match, state) : state, note: [notes[step], time].filter(Boolean).join(" · ") };
  });
}

/** Votes and certificate have no window of their own: what runs is the time in which the chain takes one. */
function timeLeft(phase: MatchPhaseName, left: number | null): string | null {
  if (left === null) return null;
  return phase === "commit" || phase === "reveal" ? `${countdown(left)} left` : `times out in ${countdown(left)}`;
}

function lastState({ phase, certificate }: LeaseMatch, state: StepState): StepState {
  if (phase.name !== "unmatched" && phase.name !== "over") return state;
  return certificate ? "nobody" : "failed";
}

function stepNotes({ phase, counts, votes, voters, certificate }: LeaseMatch): string[] {
  const round = certificate?.round ?? phase.round;
  const inRound = new Set(votes.filter((vote) => vote.round === round).map(({ validator }) => validator)).size;
  return [
    counts.asked ? `${plural(counts.asked, "node")} asked` : "no node asked",
    `${counts.bids} sealed${counts.declines ? `, ${counts.declines} declined` : ""}`,
    `${counts.revealed} of ${counts.certified} opened`,
    `${inRound} of ${voters.length} voted${round ? `, round ${round + 1}` : ""}`,
    certificateNote(phase.name, certificate),
  ];
}

function certificateNote(phase: MatchPhaseName, certificate: LeaseMatch["certificate"]): string {
  if (!certificate) return isRunning(phase) ? "" : "none came";
  if (certificate.accepted_at === null) return "signed by a quorum";
  return certificate.candidates.length ? "on the chain" : "on the chain: nobody won";
}

export interface OpenPhase {
  name: "commit" | "reveal" | "vote";
  leftMs: number | null;
  /** Of the window that has gone by, from 0 to 1. */
  share: number;
}

/** What says when an auction opened, and how long its windows are. */
export type Windows = Pick<MarketOrder, "state" | "opened_at" | "commit_ms" | "reveal_ms">;

/** Where an order's auction should be by the clock, from the chain's word alone; null if none is open. */
export function openPhase({ state, opened_at, commit_ms, reveal_ms }: Windows, nowMs: number): OpenPhase | null {
  if (state !== "open") return null;
  const passedMs = Math.max(0, nowMs - opened_at * 1000);
  if (passedMs < commit_ms) return { name: "commit", leftMs: commit_ms - passedMs, share: passedMs / commit_ms };
  if (passedMs < commit_ms + reveal_ms) return { name: "reveal", leftMs: commit_ms + reveal_ms - passedMs, share: (passedMs - commit_ms) / reveal_ms };
  return { name: "vote", leftMs: null, share: 1 };
}

/** The same by what validators report, which does not depend on this machine's clock; null if the attempt is over. */
export function reportedPhase({ phase, order: { commit_ms, reveal_ms } }: Pick<LeaseMatch, "phase" | "order">, left: number | null): OpenPhase | null {
  if (!isRunning(phase.name)) return null;
  if (phase.name === "commit" || phase.name === "reveal") {
    const windowMs = phase.name === "commit" ? commit_ms : reveal_ms;
    return { name: phase.name, leftMs: left, share: left === null ? 0 : Math.max(0, 1 - left / windowMs) };
  }
  return { name: "vote", leftMs: null, share: 1 };
}
