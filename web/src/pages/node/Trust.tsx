import type { NodeReward, NodeTrust, TierTerm } from "@/api/schema";
import { BarRow } from "@/components/BarRow";
import { Stat, Stats } from "@/components/Stat";
import { capitalized, count, percent, usd } from "@/lib/format";

const PPM = 1_000_000;

/** A node's tier, its record by facets and its last reward. Its owner also sees the counts, the terms and what changed. */
export function Trust({ trust }: { trust: NodeTrust }) {
  const { tier, reward, era } = trust;
  return (
    <div className="space-y-3" data-testid="trust">
      <Stats>
        <Stat name="Tier" hint="Decided at the end of each era, by the last thirty days">
          {capitalized(tier.tier)}
        </Stat>
        <Stat name="Reputation" hint="Completion by correctness by speed. Availability counts on its own.">
          {percent(trust.reputation_ppm / PPM)}
        </Stat>
        {reward && era !== undefined && (
          <Stat name="Last reward" unit={`era ${era}`} hint={reward.why}>
            {usd(rewardMicro(reward) / PPM)}
          </Stat>
        )}
      </Stats>
      <div className="card space-y-4 p-4">
        <ul className="space-y-3" aria-label="Facets of its record">
          {trust.facets.map(({ name, lower_ppm, rule, good, bad }) => (
            <li key={name} data-facet={name} className="space-y-1">
              <BarRow label={capitalized(name)} share={lower_ppm / PPM} colour="var(--online)" value={percent(lower_ppm / PPM)} />
              <p className="small text-muted">
                {rule}
                {good !== undefined && bad !== undefined && ` Counted: ${count(Math.round(good / PPM))} good, ${count(Math.round(bad / PPM))} bad.`}
              </p>
            </li>
          ))}
        </ul>
        {tier.keeps && tier.keeps.length > 0 && <Terms title={`Keeps the tier ${tier.tier} by`} terms={tier.keeps} />}
        {tier.next_tier && tier.wants && <Terms title={`For the tier ${tier.next_tier}`} terms={tier.wants} />}
        {reward && <Factors reward={reward} />}
        {trust.sentences?.map((sentence) => <p key={sentence}>{sentence}</p>)}
        <p className="small text-muted">
          After {trust.half_life_days} days a count weighs half as much; bars show the lower bound, which is low for a node with few jobs.
          {trust.sentences === undefined && " The owner of the node sees the counts, and what would change them."}
        </p>
      </div>
    </div>
  );
}

function Terms({ title, terms }: { title: string; terms: TierTerm[] }) {
  return (
    <section className="space-y-1">
      <h3 className="text-muted">{title}</h3>
      <ul aria-label={title}>
        {terms.map(({ name, met, text }) => (
          <li key={name}>
            <span aria-hidden className={met ? "text-online" : "text-offline"}>
              {met ? "✓" : "✕"}
            </span>{" "}
            {text}
            <span className="sr-only">{met ? ", met" : ", missing"}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Factors({ reward }: { reward: NodeReward }) {
  const factors: [string, string][] = [
    ["verified units", `${(reward.verified_units / PPM).toFixed(3)} of ${(reward.claimed_units / PPM).toFixed(2)}`],
    ["tier", `× ${(reward.tier_ppm / PPM).toFixed(2)}`],
    ["availability", percent(reward.availability_ppm / PPM)],
    ["ramp", percent(reward.ramp_ppm / PPM)],
    ["quality", percent(reward.quality_ppm / PPM)],
  ];
  return (
    <section className="space-y-1">
      <h3 className="text-muted">Its last reward</h3>
      <p className="num">{factors.map(([name, value]) => `${name} ${value}`).join(" · ")}</p>
      <p>{reward.why}</p>
    </section>
  );
}

function rewardMicro({ availability_micro, uptime_micro, quality_micro }: NodeReward): number {
  return availability_micro + uptime_micro + quality_micro;
}
