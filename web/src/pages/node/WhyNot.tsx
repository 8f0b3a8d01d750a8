import type { Why } from "@/api/types";
import { colourOf, TERM_WORDS } from "@/match/terms";
import { count, seconds } from "@/lib/format";

/** How the node fared in the last matches: what it got, what it lost, and by what. */
export function WhyNot({ why }: { why: Why }) {
  const parts = Object.entries(why.lost.worst_parts_s);
  const top = Math.max(1e-9, ...parts.map(([, value]) => value));
  const counts: [string, number, string][] = [
    ["got the job", why.chosen, "bg-online"],
    ["others were better", why.lost.count, "bg-suspect"],
    ...Object.entries(why.rejected).map(([filter, n]): [string, number, string] => [`stopped by ${filter}`, n, "bg-offline"]),
    ["ruled out by a policy", why.ruled_out, "bg-offline"],
  ];
  return (
    <div className="card space-y-4 p-4" data-testid="why">
      <ul className="list-disc space-y-1 pl-5">
        {why.sentences.map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
      {why.matches > 0 && (
        <ul className="space-y-1.5">
          {counts
            .filter(([, n]) => n > 0)
            .map(([name, n, colour]) => (
              <li key={name} className="grid grid-cols-[10rem_1fr_4rem] items-center gap-3">
                <span className="small text-muted">{name}</span>
                <span aria-hidden className="h-3 overflow-hidden rounded-md bg-line">
                  <span className={`block h-full ${colour}`} style={{ width: `${(n / why.matches) * 100}%` }} />
                </span>
                <span className="num small text-right">{count(n)}</span>
              </li>
            ))}
        </ul>
      )}
      {parts.length > 0 && (
        <div>
          <p className="small text-muted">What it lost by, on the mean:</p>
          <ul className="mt-1 space-y-1.5">
            {parts.map(([term, value]) => (
              <li key={term} className="grid grid-cols-[10rem_1fr_4rem] items-center gap-3">
                <span className="small">{TERM_WORDS[term] ?? term}</span>
                <span aria-hidden className="h-3 rounded-md" style={{ width: `${(value / top) * 100}%`, background: colourOf(term) }} />
                <span className="num small text-right">+{seconds(value)}</span>
              </li>
            ))}
          </ul>
        </div>
      )}
    </div>
  );
}
