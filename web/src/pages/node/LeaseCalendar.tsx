import type { LeaseIncome } from "@/api/schema";
import { plural } from "@/lib/format";
import { bookedDays, type BookedDay } from "@/market/bookedDays";

const PAST_DAYS = 27;
const COMING_DAYS = 14;

/** What is booked: a square per day, the last four weeks and the coming two. A bar within it is the share of the day. */
export function LeaseCalendar({ leases, nowS }: { leases: LeaseIncome[]; nowS: number }) {
  const days = bookedDays(leases, nowS, { past: PAST_DAYS, coming: COMING_DAYS });
  const booked = days.filter(({ share, isComing }) => share > 0 && isComing).length;
  return (
    <div className="space-y-2" data-testid="lease-calendar">
      <div role="img" aria-label={`Booked on ${plural(booked, "day")} from today on`} className="grid grid-cols-[repeat(auto-fill,minmax(1.25rem,1fr))] gap-1">
        {days.map((day) => (
          <span key={day.name} title={dayText(day)} className={`relative h-6 overflow-hidden rounded-[2px] bg-line ${day.isToday ? "outline outline-1 outline-text" : ""}`}>
            <span className={`absolute inset-x-0 bottom-0 ${day.isComing && !day.isToday ? "bg-volt/60" : "bg-volt"}`} style={{ height: `${day.share * 100}%` }} />
          </span>
        ))}
      </div>
      <p className="small text-muted">Four weeks back and two ahead, in UTC; today is framed. The fuller a day, the more of it is leased.</p>
    </div>
  );
}

function dayText({ name, share, leases, isComing, isToday }: BookedDay): string {
  const when = isToday ? "today" : isComing ? "booked" : "was leased";
  return share > 0 ? `${name}: ${when}, ${Math.round(share * 24 * 10) / 10} h, ${plural(leases, "lease")}` : `${name}: free`;
}
