import type { MatchExplanation } from "@/api/schema";
import { count } from "@/lib/format";

const LABELS: Record<string, string> = {
  model: "have the model",
  online: "are connected",
  accepting: "take new jobs",
  context: "can hold the prompt",
  vram: "have the memory",
  measured: "were measured",
  capacity: "have room for a job",
  not_tried: "were not tried yet",
  shortlist: "are on the shortlist",
  own_node: "are not the payer's own",
  usual_price: "ask a usual price",
};
const ALWAYS_SHOWN = ["model", "online", "capacity"];

/** How many nodes each filter removed, in the order of the filters. */
export function Funnel({ match }: { match: MatchExplanation }) {
  const total = match.candidates_total;
  const steps = match.funnel.filter((step) => step.dropped > 0 || ALWAYS_SHOWN.includes(step.filter));
  return (
    <ol className="space-y-1.5" data-testid="funnel">
      <FunnelBar label="all nodes" left={total} dropped={0} total={total} />
      {steps.map(({ filter, left, dropped }) => (
        <FunnelBar key={filter} label={LABELS[filter] ?? `pass ${filter}`} left={left} dropped={dropped} total={total} />
      ))}
    </ol>
  );
}

function FunnelBar({ label, left, dropped, total }: { label: string; left: number; dropped: number; total: number }) {
  const width = (nodes: number) => ({ width: `${(nodes / Math.max(1, total)) * 100}%` });
  return (
    <li className="grid grid-cols-[9rem_1fr_6rem] items-center gap-3">
      <span className="small text-muted">{label}</span>
      <span className="flex h-4 overflow-hidden rounded-md bg-line" aria-hidden>
        <span className="bg-online" style={width(left)} />
        <span className="bg-offline/60" style={width(dropped)} />
      </span>
      <span className="num small text-right">
        {count(left)}
        {dropped > 0 && <span className="text-offline"> −{count(dropped)}</span>}
      </span>
    </li>
  );
}
