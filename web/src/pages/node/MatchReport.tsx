import type { NodeMatchReport } from "@/api/schema";
import { BarRow } from "@/components/BarRow";
import { count, seconds } from "@/lib/format";
import { partColour, partLabel } from "@/match/costParts";

/** How the node fared in the last matches: which it won, which it lost, and why. */
export function MatchReport({ report: { matches, chosen, lost, rejected, ruled_out, sentences } }: { report: NodeMatchReport }) {
  const behind = Object.entries(lost.worst_parts_s);
  const behindMax = Math.max(1e-9, ...behind.map(([, value]) => value));
  const results: [label: string, matches: number, state: string][] = [
    ["got the job", chosen, "online"],
    ["another node was better", lost.count, "suspect"],
    ...Object.entries(rejected).map(([filter, n]): [string, number, string] => [`rejected by ${filter}`, n, "offline"]),
    ["ruled out by a policy", ruled_out, "offline"],
  ];
  return (
    <div className="card space-y-4 p-4" data-testid="why">
      <ul className="list-disc space-y-1 pl-5">
        {sentences.map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
      <div className="space-y-1.5">
        {results
          .filter(([, n]) => n > 0)
          .map(([label, n, state]) => (
            <BarRow key={label} label={label} share={n / matches} colour={`var(--${state})`} value={count(n)} />
          ))}
      </div>
      {behind.length > 0 && (
        <div className="space-y-1.5">
          <p className="small text-muted">How far it was behind, on the mean:</p>
          {behind.map(([part, value]) => (
            <BarRow key={part} label={partLabel(part)} share={value / behindMax} colour={partColour(part)} value={`+${seconds(value)}`} />
          ))}
        </div>
      )}
    </div>
  );
}
