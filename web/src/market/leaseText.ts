// What a lease costs, what an act on it means, and what happened to it, in words.
import type { ActorName, Lease, LeaseEnding, LeaseEvent, LeaseIncome, LeaseMoney, LeaseUptime } from "../api/schema.ts";
import { capitalized, duration, exactTime, usd } from "../lib/format.ts";
import { closeText } from "./orderText.ts";
import type { LeaseAction } from "./leaseSteps.ts";

/** How long it goes on if nothing else happens. */
export function runwayText({ runs_until, runway_s, limit, warning, grace_ends_at }: LeaseMoney, nowS: number): { text: string; why: string } {
  if (warning === "deposit_empty") return { text: "paused", why: `data kept for ${duration((grace_ends_at ?? nowS) - nowS)}` };
  if (runs_until !== null) return { text: duration(runs_until - nowS), why: limit === "deposit" ? "then its deposit is used up" : "then its time is over" };
  if (grace_ends_at !== null) return { text: "paused", why: `closed in ${duration(grace_ends_at - nowS)} unless you resume it` };
  return runway_s === null ? { text: "–", why: "no provider yet" } : { text: duration(runway_s), why: "once it runs" };
}

interface LeaseTotals {
  running: number;
  hourly: number;
  spent: number;
  left: number;
  /** The first end of those that run, in Unix seconds. */
  nextEnd: number | null;
  warned: number;
}

/** What leases cost together. */
export function leaseTotals(leases: Pick<Lease, "order" | "money" | "ending">[]): LeaseTotals {
  const open = leases.filter(({ ending }) => !ending);
  const sum = (of: typeof leases, read: (money: LeaseMoney) => string) => of.reduce((total, { money }) => total + (money ? Number(read(money)) : 0), 0);
  const ends = open.flatMap(({ money }) => money?.runs_until ?? []);
  return {
    running: open.filter(({ order }) => order?.lease?.state === "active").length,
    hourly: sum(open, (money) => money.hourly_usd),
    spent: sum(leases, (money) => money.spent_usd),
    left: sum(open, (money) => money.left_usd),
    nextEnd: ends.length ? Math.min(...ends) : null,
    warned: open.filter(({ money }) => money?.warning).length,
  };
}

export function warningText({ warning, grace_ends_at }: LeaseMoney): string | null {
  if (warning === "deposit_low") return "80 % of the deposit is spent. Top it up, or the lease is paused when nothing is left.";
  if (warning !== "deposit_empty") return null;
  const until = grace_ends_at === null ? "the grace ends" : exactTime(grace_ends_at);
  return `The deposit is used up and the lease is paused. Its data is kept until ${until}; a top-up resumes it by itself.`;
}

/** The share of all that was put in that is spent, from 0 to 1. */
export function spentShare({ spent_usd, left_usd }: Pick<LeaseMoney, "spent_usd" | "left_usd">): number {
  const [spent, left] = [Number(spent_usd), Number(left_usd)];
  return spent + left > 0 ? spent / (spent + left) : 0;
}

/** What the uptime counts, and what not. */
export function uptimeHint({ running_s, down_s, outages, paused_s, waiting_s }: LeaseUptime): string {
  const down = outages ? `, was down ${duration(down_s)} in ${outages === 1 ? "one outage" : `${outages} outages`}` : "";
  const aside = [paused_s > 0 && `${duration(paused_s)} paused`, waiting_s > 0 && `${duration(waiting_s)} in which a new auction waited for you`].filter(Boolean);
  return `By the chain, over all its providers: ran ${duration(running_s)}${down}.${aside.length ? ` Not counted: ${aside.join(", ")}.` : ""}`;
}

/** Until when a machine is booked by a lease; of one that is over, since when it is free again. */
export function bookedText({ state, left_at, ends_at }: Pick<LeaseIncome, "state" | "left_at" | "ends_at">, nowS: number): string {
  if (left_at !== null) return `${state === "left" ? "left" : "ended"} ${duration(nowS - left_at)} ago`;
  if (ends_at !== null) return `for ${duration(ends_at - nowS)}, until ${exactTime(ends_at)}`;
  return state === "paused" ? "paused, its place is kept" : "about to start";
}

/** What an act costs or gives back, before one says yes. */
export function consequence(action: LeaseAction, lease: Pick<Lease, "order" | "money">): string {
  const hourly = lease.order?.lease ? usd(lease.order.lease.hourly_usd) : null;
  switch (action) {
    case "pause":
      return `Its program stops, and so does the meter: ${hourly} an hour now, nothing while it is paused. Its provider keeps the place and the data until the grace ends, then the lease is closed and the rest of the deposit comes back.`;
    case "resume":
      return `Its provider starts the program again. It costs ${hourly} an hour from the moment it runs.`;
    case "reopen":
      return "A new auction is held for the same order and deposit. It costs nothing by itself.";
    case "cancel":
      return `The order is withdrawn before it has a provider. It costs nothing: ${usd(lease.money?.left_usd ?? 0)} come back to your credits.`;
    case "close":
      return closeConsequence(lease);
    default:
      return "";
  }
}

function closeConsequence({ order, money }: Pick<Lease, "order" | "money">): string {
  const [held, left] = [order?.lease, money ? usd(money.left_usd) : "the rest"];
  const gone = "The machine is given up now, and the data in the container is deleted.";
  if (held && held.state === "pending" && held.running_since === null) {
    const most = (Number(held.hourly_usd) * Math.max(0, held.confirm_by - held.created_at)) / 3600;
    return `${gone} It has not run yet: you pay the reservation, ${usd(most)} at most, and the rest of ${left} comes back to your credits.`;
  }
  return `${gone} You have spent ${usd(money?.spent_usd ?? 0)}; about ${left} comes back to your credits.`;
}

const WHO: Record<ActorName, string> = {
  renter: "you",
  provider: "its provider",
  validators: "the validators",
  network: "the network",
};

/** Who ended it, why, and where the money went. */
export function endingText({ reason, who, why, paid_usd, refunded_usd, compensation_usd }: LeaseEnding): string {
  const money = [`${usd(paid_usd)} paid`, refunded_usd === null ? "the refund is being read from the chain" : `${usd(refunded_usd)} refunded`];
  if (Number(compensation_usd) > 0) money.push(`${usd(compensation_usd)} compensation from the provider's bond`);
  return `Ended by ${WHO[who]}: ${why || closeText(reason)}. ${capitalized(money.join(", "))}.`;
}

/** What an event adds in numbers. */
export function eventFacts({ hourly_usd, duration_s, amount_usd, paid_usd, refunded_usd, compensation_usd }: LeaseEvent): string {
  const facts = [
    hourly_usd && `${usd(hourly_usd)}/h`,
    duration_s && `for ${duration(duration_s)}`,
    amount_usd && `+${usd(amount_usd)}`,
    paid_usd && `${usd(paid_usd)} paid`,
    refunded_usd && `${usd(refunded_usd)} refunded`,
    Number(compensation_usd) > 0 && `${usd(compensation_usd ?? 0)} compensation`,
  ];
  return facts.filter(Boolean).join(", ");
}
