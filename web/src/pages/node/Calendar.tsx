import type { Day } from "@/api/types";
import { percent, plural } from "@/lib/format";

const WEEKS = 18;
const DAY_S = 86_400;

/** One square a day: how much of it the node was there. */
export function Calendar({ days }: { days: Day[] }) {
  const known = new Map(days.map((day) => [day.day, day]));
  const today = Math.floor(Date.now() / 1000 / DAY_S);
  const first = today - (WEEKS - 1) * 7 - ((today + 3) % 7);
  const all = Array.from({ length: today - first + 1 }, (_, at) => {
    const name = new Date((first + at) * DAY_S * 1000).toISOString().slice(0, 10);
    return { name, day: known.get(name), share: known.get(name)?.up ?? null };
  });
  const told = all.filter((one) => one.share !== null);
  const mean = told.reduce((sum, one) => sum + (one.share ?? 0), 0) / Math.max(1, told.length);
  return (
    <div className="space-y-2">
      <div
        role="img"
        aria-label={told.length ? `Up ${percent(mean)} over ${plural(told.length, "day")}` : "No day is known yet"}
        className="grid w-max grid-flow-col grid-rows-7 gap-1 overflow-x-auto"
      >
        {all.map(({ name, day, share }) => (
          <span
            key={name}
            title={share === null ? `${name}: not known` : `${name}: up ${percent(share)}${jobsOf(day)}`}
            className={`h-3 w-3 rounded-[2px] ${share === null ? "bg-line" : "bg-online"}`}
            style={share === null ? undefined : { opacity: 0.25 + 0.75 * share }}
          />
        ))}
      </div>
      <p className="small text-muted">
        {told.length ? `Up ${percent(mean)} of the time that a gateway looked, over ${plural(told.length, "day")}.` : "The first day is being counted."}
      </p>
    </div>
  );
}

function jobsOf(day: Day | undefined): string {
  return day?.jobs === undefined ? "" : `, ${plural(day.jobs, "job")}, ${day.failed ?? 0} failed`;
}
