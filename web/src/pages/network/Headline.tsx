import type { ReactNode } from "react";
import type { NetworkTotals } from "@/api/schema";
import { RollingNumber } from "@/components/RollingNumber";
import { count, digits, ms } from "@/lib/format";

/** The three main figures: over the map on a wide screen, else below it. */
export function Headline({ totals }: { totals: NetworkTotals | null }) {
  if (!totals) return null;
  const { online = 0, busy = 0, suspect = 0 } = totals.nodes;
  return (
    <dl className="flex flex-wrap gap-x-8 gap-y-2 px-4 pt-3 lg:pointer-events-none lg:absolute lg:top-3 lg:left-3 lg:flex-col lg:rounded-md lg:bg-ink/70 lg:px-3 lg:py-2">
      <Figure name={totals.gpus ? "GPUs online" : "nodes online"}>
        <RollingNumber value={totals.gpus || online + busy + suspect} format={count} />
      </Figure>
      <Figure name="tokens/s now">
        <RollingNumber value={totals.tokens_per_s} format={digits} />
      </Figure>
      <Figure name="median first token">{ms(totals.first_token_ms)}</Figure>
    </dl>
  );
}

function Figure({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className="flex flex-col-reverse">
      <dt className="small text-muted">{name}</dt>
      <dd className="num text-[20px] leading-tight">{children}</dd>
    </div>
  );
}
