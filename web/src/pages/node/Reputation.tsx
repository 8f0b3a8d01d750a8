import type { Reputation as Shape } from "@/api/types";
import { count, percent, plural } from "@/lib/format";
import { Stat, Stats } from "@/parts/Stat";
import { Time } from "@/parts/Time";
import { wordsOf } from "./causes";

/** How far the node can be relied on, and for who may know: by what it failed, and what helps. */
export function Reputation({ reputation }: { reputation: Shape }) {
  const { jobs, failures, causes } = reputation;
  const most = Math.max(1, ...(causes ?? []).map((each) => each.count));
  return (
    <div className="space-y-3" data-testid="reputation">
      <Stats>
        <Stat name="Score" hint="The share of its jobs that it can be expected to do">
          {percent(reputation.score)}
        </Stat>
        <Stat name="At least" hint="The lower bound: nodes with few jobs are known badly">
          {percent(reputation.lower)}
        </Stat>
        {jobs !== undefined && <Stat name="Jobs counted">{count(jobs)}</Stat>}
        {failures !== undefined && <Stat name="Of them failed">{count(failures)}</Stat>}
      </Stats>
      <div className="card space-y-4 p-4">
        {jobs === 0 && <p className="text-muted">It has had no job yet. A new node starts in the middle, and rises with each job that it does.</p>}
        {causes && causes.length > 0 && (
          <ul className="space-y-3" aria-label="What it failed by">
            {causes.map((each) => {
              const { name, means, help } = wordsOf(each.cause);
              return (
                <li key={each.cause} data-cause={each.cause} className="space-y-1">
                  <div className="grid grid-cols-[10rem_1fr_4rem] items-center gap-3">
                    <span className="small">{name}</span>
                    <span aria-hidden className="h-3 overflow-hidden rounded-md bg-line">
                      <span className="block h-full bg-offline" style={{ width: `${(each.count / most) * 100}%` }} />
                    </span>
                    <span className="num small text-right">{count(each.count)}</span>
                  </div>
                  <p className="small text-muted">
                    {means} Last: <Time at={each.last_unix_s} />. {help}
                  </p>
                </li>
              );
            })}
          </ul>
        )}
        {jobs !== undefined && jobs > 0 && failures === 0 && <p className="text-muted">Nothing failed in the days that are kept.</p>}
        <p className="small text-muted">
          A job counts half as much after {plural(reputation.half_life_days, "day")}. Refusing in time, and what a client asked wrongly or took back, costs nothing.
          {causes === undefined && " Its owner sees what it failed by."}
        </p>
      </div>
    </div>
  );
}
