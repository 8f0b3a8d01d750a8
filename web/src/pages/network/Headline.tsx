import type { Totals } from "@/api/types";
import { count, digits, ms } from "@/lib/format";
import { RollingNumber } from "@/parts/RollingNumber";

/** Three numbers over the map, for the first ten seconds. */
export function Headline({ totals }: { totals: Totals | null }) {
  if (!totals) return null;
  const online = (totals.nodes.online ?? 0) + (totals.nodes.busy ?? 0) + (totals.nodes.suspect ?? 0);
  return (
    <dl className="pointer-events-none absolute top-3 left-3 flex flex-wrap gap-x-8 gap-y-2 rounded-md bg-ink/70 px-3 py-2 md:left-5">
      <Figure name={totals.gpus ? "GPUs online" : "nodes online"}>
        <RollingNumber value={totals.gpus || online} format={count} />
      </Figure>
      <Figure name="tokens/s now">
        <RollingNumber value={totals.tokens_per_s} format={digits} />
      </Figure>
      <Figure name="median first token">{ms(totals.first_token_ms)}</Figure>
    </dl>
  );
}

function Figure({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <div className="flex flex-col-reverse">
      <dt className="small text-muted">{name}</dt>
      <dd className="num text-[20px] leading-tight">{children}</dd>
    </div>
  );
}
