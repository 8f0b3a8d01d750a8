import type { Totals } from "@/api/types";
import { count, digits, ms } from "@/lib/format";
import { RollingNumber } from "@/parts/RollingNumber";

/** Three numbers for the first ten seconds: over the sea at the left of a wide map, else below it. */
export function Headline({ totals }: { totals: Totals | null }) {
  if (!totals) return null;
  const online = (totals.nodes.online ?? 0) + (totals.nodes.busy ?? 0) + (totals.nodes.suspect ?? 0);
  return (
    <dl className="flex flex-wrap gap-x-8 gap-y-2 px-4 pt-3 lg:pointer-events-none lg:absolute lg:top-3 lg:left-3 lg:flex-col lg:rounded-md lg:bg-ink/70 lg:px-3 lg:py-2">
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
