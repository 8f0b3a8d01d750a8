import { useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import type { Explanation } from "@/api/types";
import { count } from "@/lib/format";
import { readable } from "@/match/relaxation";
import { CHIPS, toggled } from "./chips";

interface Props {
  on: string[];
  onChange: (on: string[]) => void;
  models: string[];
  provider: Record<string, unknown>;
}

/** Policy chips, and how many nodes they leave for each model. */
export function Chips({ on, onChange, models, provider }: Props) {
  return (
    <div className="space-y-2">
      <div className="flex flex-wrap gap-2" role="group" aria-label="Who may serve it">
        {CHIPS.map((chip) => (
          <button
            key={chip.name}
            type="button"
            aria-pressed={on.includes(chip.name)}
            onClick={() => onChange(toggled(on, chip))}
            className={`small min-h-8 rounded-full border px-3 ${on.includes(chip.name) ? "border-volt text-volt" : "border-line text-muted hover:text-text"}`}
          >
            {chip.name}
          </button>
        ))}
      </div>
      {models.map((model) => (
        <Eligible key={model} model={model} provider={provider} />
      ))}
    </div>
  );
}

function Eligible({ model, provider }: { model: string; provider: Record<string, unknown> }) {
  const dry = useQuery({
    queryKey: ["dry", model, provider],
    queryFn: ({ signal }) => api<Explanation>("/v1/match", { body: { model, provider }, signal }),
    enabled: Boolean(model),
    refetchInterval: 5_000,
    placeholderData: (before) => before,
    retry: false,
  });
  const left = dry.data?.funnel.at(-1)?.left;
  return (
    <p className="small" role="status" data-testid="eligible">
      {dry.error ? (
        <span className="text-offline">{dry.error.message}</span>
      ) : left === undefined ? (
        <span className="text-muted">Looking for nodes …</span>
      ) : (
        <>
          <span className="num">{count(left)}</span> of <span className="num">{count(dry.data?.candidates_total ?? 0)}</span> nodes may serve {model}
          {left === 0 && dry.data?.nearest_relaxations[0] ? `. ${readable(dry.data.nearest_relaxations[0])}` : ""}
        </>
      )}
    </p>
  );
}
