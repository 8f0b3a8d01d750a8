// Which days a machine is leased on, and how much of each.
import type { LeaseIncome } from "../api/schema.ts";

const DAY_S = 86_400;

export interface BookedDay {
  /** YYYY-MM-DD in UTC. */
  name: string;
  /** Of the day, from 0 to 1: leases at the same time count once. */
  share: number;
  leases: number;
  isToday: boolean;
  isComing: boolean;
}

type Booking = Pick<LeaseIncome, "placed_at" | "left_at" | "ends_at">;

/** From so many days ago to so many ahead, today included in both. What is booked without an end counts until now. */
export function bookedDays(bookings: Booking[], nowS: number, { past, coming }: { past: number; coming: number }): BookedDay[] {
  const today = Math.floor(nowS / DAY_S);
  return Array.from({ length: past + 1 + coming }, (_, at) => {
    const day = today - past + at;
    const spans = bookings
      .map(({ placed_at, left_at, ends_at }): [number, number] => [Math.max(placed_at, day * DAY_S), Math.min(left_at ?? ends_at ?? nowS, (day + 1) * DAY_S)])
      .filter(([from, to]) => to > from);
    return { name: new Date(day * DAY_S * 1000).toISOString().slice(0, 10), share: covered(spans) / DAY_S, leases: spans.length, isToday: day === today, isComing: day >= today };
  });
}

/** Seconds in at least one of the spans. */
function covered(spans: [from: number, to: number][]): number {
  let [seconds, until] = [0, -Infinity];
  for (const [from, to] of spans.toSorted(([a], [b]) => a - b)) {
    seconds += Math.max(0, to - Math.max(from, until));
    until = Math.max(until, to);
  }
  return seconds;
}
