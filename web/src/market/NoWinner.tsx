import { Link } from "wouter";
import type { LeaseMatch } from "@/api/schema";
import { count, plural } from "@/lib/format";
import { useProviderName } from "./names";
import { relaxationText } from "./orderText";
import { rankReasons, reasonText } from "./reasons";

/** Why an attempt has no winner: the sentence, how many each reason stopped, and what would have let somebody in. */
export function NoWinner({ match }: { match: LeaseMatch }) {
  const { why, counts, relaxations } = match;
  const nameOf = useProviderName();
  const reasons = rankReasons(counts.by_reason);
  return (
    <div className="space-y-3 rounded-md border border-suspect p-4" data-testid="no-winner">
      <p className="font-semibold">{why ?? "No bid won."}</p>
      {reasons.length > 1 && <Reasons of={reasons} />}
      <div className="small space-y-1">
        {relaxations.length > 0 ? (
          <>
            <p className="text-muted">The smallest changes that would have let somebody bid:</p>
            <ul className="list-disc pl-5">
              {relaxations.map((change) => (
                <li key={`${change.field} ${change.value}`}>
                  {relaxationText(change, nameOf)} adds {plural(change.providers, "provider")}
                </li>
              ))}
            </ul>
          </>
        ) : (
          <p className="text-muted">No change of one condition alone would have let somebody bid.</p>
        )}
      </div>
      <Link href="/leases/new" className="link">
        Order something else
      </Link>
    </div>
  );
}

function Reasons({ of: reasons }: { of: [reason: string, times: number][] }) {
  const most = Math.max(1, ...reasons.map(([, times]) => times));
  return (
    <div className="space-y-1.5">
      {reasons.map(([reason, times]) => (
        <div key={reason} className="grid grid-cols-[1fr_5rem_2rem] items-center gap-3 sm:grid-cols-[18rem_1fr_2rem]">
          <span className="small" title={reason}>
            {reasonText(reason)}
          </span>
          <span aria-hidden className="h-3 overflow-hidden rounded-md bg-line">
            <span className="block h-full bg-suspect" style={{ width: `${(times / most) * 100}%` }} />
          </span>
          <span className="num small text-right">{count(times)}</span>
        </div>
      ))}
    </div>
  );
}
