// The states that a lease goes through, and what its renter may do in each.
import type { HistoryKindName, Lease, LeaseEvent } from "../api/schema.ts";

export const STEPS = ["ordered", "matched", "starting", "running", "paused", "closed"] as const;
export type LeaseStepName = (typeof STEPS)[number];
export type LeaseStepState = "done" | "now" | "to come" | "left out";

export interface LeaseStep {
  name: LeaseStepName;
  state: LeaseStepState;
  /** When it was last entered, in Unix seconds. */
  at: number | null;
}

type Standing = Pick<Lease, "phase" | "order">;

const ENTERED_BY: Record<LeaseStepName, HistoryKindName[]> = {
  ordered: ["ordered"],
  matched: ["matched"],
  starting: ["placed", "taken_over", "resumed"],
  running: ["started"],
  paused: ["paused"],
  closed: ["closed", "cancelled", "expired"],
};

/** Where it is now. One without a provider is ordered again; one that a stand-in takes over is starting again. */
export function currentStep({ phase, order }: Standing): LeaseStepName {
  if (phase === "closed" || phase === "expired" || phase === "failed") return "closed";
  if (phase !== "matched") return "ordered";
  switch (order?.lease?.state) {
    case "pending":
    case "vacant":
      return "starting";
    case "active":
      return "running";
    case "paused":
      return "paused";
    case "unplaced":
      return "ordered";
    case "closed":
      return "closed";
    default:
      return "matched";
  }
}

export function leaseSteps(lease: Standing, events: Pick<LeaseEvent, "kind" | "at">[]): LeaseStep[] {
  const now = currentStep(lease);
  return STEPS.map((name) => {
    const hasBeen = name !== "closed" || now === "closed"; // an attempt may expire, and the order goes on
    const at = (hasBeen && events.findLast(({ kind }) => ENTERED_BY[name].includes(kind))?.at) || null;
    const isPassed = at !== null || (name !== "paused" && now !== "closed" && STEPS.indexOf(name) < STEPS.indexOf(now));
    return { name, at, state: name === now ? "now" : isPassed ? "done" : now === "closed" ? "left out" : "to come" };
  });
}

export type LeaseAction = "pause" | "resume" | "reopen" | "extend" | "top-up" | "close" | "cancel";

/** What its renter may do now, the likeliest first. */
export function actionsOf(lease: Standing): LeaseAction[] {
  const { phase, order } = lease;
  if (phase === "open") return ["top-up", "cancel"];
  if (phase === "unmatched") return ["reopen", "top-up", "cancel"];
  if (phase !== "matched") return [];
  if (order?.lease?.state === "unplaced") return ["reopen", "top-up", "close"];
  switch (currentStep(lease)) {
    case "running":
      return ["pause", "extend", "top-up", "close"];
    case "paused":
      return ["resume", "top-up", "close"];
    case "starting":
    case "matched":
      return ["top-up", "close"];
    default:
      return [];
  }
}
