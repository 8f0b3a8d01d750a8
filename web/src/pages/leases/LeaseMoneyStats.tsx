import type { Lease } from "@/api/schema";
import { Stat } from "@/components/Stat";
import { duration, exactTime, percent, usd } from "@/lib/format";
import { useNow } from "@/lib/now";
import { runwayText, spentShare, uptimeHint } from "@/market/leaseText";
import { ProviderName } from "@/market/names";

const WARNED_AT = 0.8;

/** Burn rate, spent, left and runway, and how much of the deposit that is. */
export function LeaseMoneyStats({ lease }: { lease: Lease }) {
  const nowS = useNow();
  const { money, order, ending, uptime } = lease;
  if (!money) return null;
  const runway = runwayText(money, nowS);
  const held = order?.lease;
  return (
    <div className="card space-y-4 p-4" data-testid="money">
      <div className="grid grid-cols-2 gap-4 sm:grid-cols-3 lg:grid-cols-4 xl:grid-cols-7">
        <Stat name="Costs now" unit="/h" hint="The burn rate: what the meter takes at this moment. Nothing while it does not run.">
          {usd(money.hourly_usd)}
        </Stat>
        <Stat name="Spent" hint="Up to now, also what no settlement has written down yet">
          {usd(ending?.paid_usd ?? money.spent_usd)}
        </Stat>
        <Stat name={ending ? "Came back" : "Deposit left"} hint="Comes back to your credits when the lease ends">
          {usd(ending?.refunded_usd ?? money.left_usd)}
        </Stat>
        <Stat name="Runs for" hint={money.runs_until === null ? runway.why : `until ${exactTime(money.runs_until)}`}>
          {ending ? "–" : runway.text}
          <span className="small block font-sans text-muted" data-testid="runway">
            {ending ? "it has ended" : money.runs_until === null ? runway.why : `until ${clock(money.runs_until)}, ${runway.why}`}
          </span>
        </Stat>
        <Stat name="Agreed price" unit="/h" hint="What the auction gave. The provider cannot raise it.">
          {held ? usd(held.hourly_usd) : "–"}
        </Stat>
        <Stat name="Uptime" hint={uptime ? uptimeHint(uptime) : "Measured from its first start on"}>
          <span data-testid="uptime">{uptime ? `${uptime.percent} %` : "–"}</span>
          {uptime && uptime.down_s > 0 && <span className="small block font-sans text-muted">down {duration(uptime.down_s)}</span>}
        </Stat>
        <Stat name="Provider">
          <span className="font-sans">{held?.provider ? <ProviderName of={held.provider} /> : "–"}</span>
          {money.paused_s > 0 && <span className="small block font-sans text-muted">paused {duration(money.paused_s)} in all</span>}
        </Stat>
      </div>
      {!ending && <DepositBar share={spentShare(money)} deposited={money.deposited_usd} maxSpend={lease.max_spend_usd} />}
    </div>
  );
}

/** The time of day here; the exact one is shown on hover. */
function clock(unixS: number): string {
  return new Date(unixS * 1000).toLocaleString("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" });
}

function DepositBar({ share, deposited, maxSpend }: { share: number; deposited: string; maxSpend: string | null }) {
  return (
    <div className="space-y-1">
      <svg viewBox="0 0 100 2" preserveAspectRatio="none" className="h-2 w-full" role="img" aria-label={`${percent(share)} of the deposit is spent; a warning comes at 80 %`}>
        <rect width="100" height="2" className="fill-line" />
        <rect width={Math.min(1, share) * 100} height="2" className={share >= WARNED_AT ? "fill-suspect" : "fill-online"} />
        <rect x={WARNED_AT * 100} width="0.3" height="2" className="fill-text" />
      </svg>
      <p className="small flex flex-wrap justify-between gap-x-4 text-muted">
        <span>
          <span className="num">{percent(share)}</span> of <span className="num">{usd(deposited)}</span> put in is spent; a warning comes at 80 %
        </span>
        {maxSpend && (
          <span>
            may cost <span className="num">{usd(maxSpend)}</span> at most
          </span>
        )}
      </p>
    </div>
  );
}
