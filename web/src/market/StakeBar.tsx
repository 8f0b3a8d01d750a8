import { percent, shortId } from "@/lib/format";
import { shareOf, uusd } from "./stake";

interface Props {
  validators: { id: string; weight_usd: string }[];
  total_usd: string;
}

/** The stake as one bar, a piece for each validator, with the quorum as a mark at two thirds. */
export function StakeBar({ validators, total_usd }: Props) {
  const total = uusd(total_usd);
  const shares = validators.map(({ id, weight_usd }) => ({ id, share: shareOf(uusd(weight_usd), total) })).filter(({ share }) => share > 0);
  const label = shares.map(({ id, share }) => `${shortId(id)} ${percent(share)}`).join(", ");
  return (
    <div className="card p-4 pt-8">
      <div className="relative">
        <div className="flex h-6 gap-px overflow-hidden rounded-md bg-line" role="img" aria-label={`Stake: ${label}`}>
          {shares.map(({ id, share }) => (
            <span
              key={id}
              title={`${id}: ${percent(share)}`}
              className="num small flex min-w-0 items-center justify-center gap-2 overflow-hidden bg-busy whitespace-nowrap text-ink"
              style={{ width: `${share * 100}%` }}
            >
              {share >= 0.16 && <span className="max-lg:hidden">{shortId(id)}</span>}
              {share >= 0.08 && percent(share)}
            </span>
          ))}
        </div>
        <span aria-hidden className="absolute -top-5 h-5 border-l-2 border-volt" style={{ left: "66.667%" }}>
          <span className="small absolute -top-1 left-1.5 whitespace-nowrap text-volt">quorum</span>
        </span>
        <span aria-hidden className="absolute top-full h-1.5 border-l-2 border-volt" style={{ left: "66.667%" }} />
      </div>
    </div>
  );
}
