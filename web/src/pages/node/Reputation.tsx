import type { NodeFailureCount, NodeReputation } from "@/api/schema";
import { BarRow } from "@/components/BarRow";
import { Stat, Stats } from "@/components/Stat";
import { Time } from "@/components/Time";
import { count, percent, plural } from "@/lib/format";
import { describeCause } from "./failureCauses";

/** The node's reputation. Its owner and operators also see why jobs failed and what helps. */
export function Reputation({ reputation: { score, lower, half_life_days, jobs, failures, causes } }: { reputation: NodeReputation }) {
  const countMax = Math.max(1, ...(causes ?? []).map((cause) => cause.count));
  return (
    <div className="space-y-3" data-testid="reputation">
      <Stats>
        <Stat name="Score" hint="The expected share of jobs that the node finishes">
          {percent(score)}
        </Stat>
        <Stat name="Lower bound" hint="With 95 % confidence. It is low for a node with few jobs.">
          {percent(lower)}
        </Stat>
        {jobs !== undefined && <Stat name="Jobs counted">{count(jobs)}</Stat>}
        {failures !== undefined && <Stat name="Failed">{count(failures)}</Stat>}
      </Stats>
      <div className="card space-y-4 p-4">
        {jobs === 0 && <p className="text-muted">The node has had no job yet. A new node starts in the middle and rises with each job that it finishes.</p>}
        {causes && causes.length > 0 && (
          <ul className="space-y-3" aria-label="Causes of failures">
            {causes.map((failure) => (
              <Failure key={failure.cause} failure={failure} countMax={countMax} />
            ))}
          </ul>
        )}
        {Boolean(jobs) && failures === 0 && <p className="text-muted">No job failed in the days on record.</p>}
        <p className="small text-muted">
          After {plural(half_life_days, "day")} a job counts half as much. Refusing a job in time costs nothing, and neither does a job that its client
          cancelled or that was itself at fault.
          {causes === undefined && " The owner of the node sees why jobs failed."}
        </p>
      </div>
    </div>
  );
}

function Failure({ failure, countMax }: { failure: NodeFailureCount; countMax: number }) {
  const { name, meaning, help } = describeCause(failure.cause);
  return (
    <li data-cause={failure.cause} className="space-y-1">
      <BarRow label={name} share={failure.count / countMax} colour="var(--offline)" value={count(failure.count)} />
      <p className="small text-muted">
        {meaning} Last: <Time at={failure.last_unix_s} />. {help}
      </p>
    </li>
  );
}
