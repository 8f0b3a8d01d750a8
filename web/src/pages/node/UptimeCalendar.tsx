import type { CalendarDay } from "@/api/schema";
import { percent, plural } from "@/lib/format";

const WEEKS = 18;
const DAY_MS = 86_400_000;

/** One square per day, the fuller the longer the node was up. Each column is a week that begins on Monday. */
export function UptimeCalendar({ days }: { days: CalendarDay[] }) {
  const byName = new Map(days.map((day) => [day.day, day]));
  const today = Math.floor(Date.now() / DAY_MS);
  const first = today - (WEEKS - 1) * 7 - ((today + 3) % 7); // day 0, 1 January 1970, was a Thursday
  const shown = Array.from({ length: today - first + 1 }, (_, at): CalendarDay => {
    const day = new Date((first + at) * DAY_MS).toISOString().slice(0, 10);
    return byName.get(day) ?? { day, up: null };
  });
  const observed = shown.map(({ up }) => up).filter((up) => up !== null);
  const mean = observed.reduce((sum, up) => sum + up, 0) / Math.max(1, observed.length);
  const summary = `Up ${percent(mean)} of the time that a gateway observed, over ${plural(observed.length, "day")}.`;
  return (
    <div className="space-y-2">
      <div
        role="img"
        aria-label={observed.length ? summary : "No day is recorded yet"}
        className="grid w-max grid-flow-col grid-rows-7 gap-1 overflow-x-auto"
      >
        {shown.map((day) => (
          <span
            key={day.day}
            title={`${day.day}: ${dayText(day)}`}
            className={`h-3 w-3 rounded-[2px] ${day.up === null ? "bg-line" : "bg-online"}`}
            style={day.up === null ? undefined : { opacity: 0.25 + 0.75 * day.up }}
          />
        ))}
      </div>
      <p className="small text-muted">{observed.length ? summary : "The first day is being recorded."}</p>
    </div>
  );
}

function dayText({ up, jobs, failed }: CalendarDay): string {
  if (up === null) return "not observed";
  return `up ${percent(up)}${jobs === undefined ? "" : `, ${plural(jobs, "job")}, ${failed ?? 0} failed`}`;
}
