import { useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { DryRunExplanation, DryRunRequest } from "@/api/schema";
import { count } from "@/lib/format";
import { formatRelaxation } from "@/match/relaxation";
import { CHIPS, toggleChip } from "./policyChips";

interface Props {
  selected: string[];
  onChange: (selected: string[]) => void;
  models: string[];
  provider: Record<string, unknown>;
}

/** The policy chips, and how many nodes they allow for each model. */
export function ChipBar({ selected, onChange, models, provider }: Props) {
  return (
    <div className="space-y-2">
      <div className="flex flex-wrap gap-2" role="group" aria-label="Which nodes may serve it">
        {CHIPS.map((chip) => (
          <button
            key={chip.name}
            type="button"
            aria-pressed={selected.includes(chip.name)}
            onClick={() => onChange(toggleChip(selected, chip))}
            className={`small min-h-8 rounded-full border px-3 ${selected.includes(chip.name) ? "border-volt text-volt" : "border-line text-muted hover:text-text"}`}
          >
            {chip.name}
          </button>
        ))}
      </div>
      {models.map((model) => (
        <EligibleCount key={model} request={{ model, provider }} />
      ))}
    </div>
  );
}

/** Asks the gateway for a dry run: it matches the request and sends it to no node. */
function EligibleCount({ request }: { request: DryRunRequest }) {
  const dryRun = useQuery({
    queryKey: ["dry run", request],
    queryFn: ({ signal }) => api<DryRunExplanation>("/v1/match", { body: request, signal }),
    refetchInterval: 5_000,
    placeholderData: (before) => before,
    retry: false,
  });
  const match = dryRun.data;
  const eligible = match?.funnel.at(-1)?.left ?? 0;
  return (
    <p className="small" role="status" data-testid="eligible">
      {dryRun.error ? (
        <span className="text-offline">{dryRun.error.message}</span>
      ) : !match ? (
        <span className="text-muted">Counting nodes …</span>
      ) : (
        <>
          <span className="num">{count(eligible)}</span> of <span className="num">{count(match.candidates_total)}</span> nodes may serve {request.model}
          {eligible === 0 && match.nearest_relaxations[0] ? `. ${formatRelaxation(match.nearest_relaxations[0])}` : ""}
        </>
      )}
    </p>
  );
}
