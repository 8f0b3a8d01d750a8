import type { Explanation } from "@/api/types";
import { count } from "@/lib/format";

const WORDS: Record<string, string> = {
  model: "have the model",
  online: "are connected",
  accepting: "take new jobs",
  context: "hold the prompt",
  vram: "have the memory",
  measured: "were measured",
  capacity: "have room",
  not_tried: "were not tried yet",
  shortlist: "are on the shortlist",
  own_node: "are not the payer's own",
  usual_price: "ask a usual price",
};

/** How many nodes each rule removed. */
export function Funnel({ match }: { match: Explanation }) {
  const total = Math.max(1, match.candidates_total);
  const steps = match.funnel.filter((step) => step.dropped > 0 || ["model", "online", "capacity"].includes(step.filter));
  return (
    <ol className="space-y-1.5" data-testid="funnel">
      <Bar name="all nodes" left={match.candidates_total} dropped={0} total={total} />
      {steps.map((step) => (
        <Bar key={step.filter} name={WORDS[step.filter] ?? `pass ${step.filter}`} left={step.left} dropped={step.dropped} total={total} />
      ))}
    </ol>
  );
}

function Bar({ name, left, dropped, total }: { name: string; left: number; dropped: number; total: number }) {
  return (
    <li className="grid grid-cols-[9rem_1fr_6rem] items-center gap-3">
      <span className="small text-muted">{name}</span>
      <span className="flex h-4 overflow-hidden rounded-md bg-line" aria-hidden>
        <span className="bg-online" style={{ width: `${(left / total) * 100}%` }} />
        <span className="bg-offline/60" style={{ width: `${(dropped / total) * 100}%` }} />
      </span>
      <span className="num small text-right">
        {count(left)}
        {dropped > 0 && <span className="text-offline"> −{count(dropped)}</span>}
      </span>
    </li>
  );
}
