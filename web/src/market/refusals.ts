// Refusals of one message by several validators, as one row.
import type { MatchRefusal } from "../api/schema.ts";

export interface RefusalGroup {
  provider: string;
  reason: string;
  validators: string[];
  /** The most that a validator reports. */
  late_by_ms: number;
}

/** Those that most validators refused come first. */
export function groupRefusals(refusals: MatchRefusal[]): RefusalGroup[] {
  const groups = new Map<string, RefusalGroup>();
  for (const { provider, reason, validator, late_by_ms } of refusals) {
    const key = `${provider} ${reason}`;
    const group = groups.get(key) ?? { provider, reason, validators: [], late_by_ms: 0 };
    if (!group.validators.includes(validator)) group.validators.push(validator);
    group.late_by_ms = Math.max(group.late_by_ms, late_by_ms);
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => b.validators.length - a.validators.length);
}
