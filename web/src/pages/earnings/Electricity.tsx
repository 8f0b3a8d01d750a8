import { useState } from "react";
import type { Standing } from "@/api/types";
import { usd } from "@/lib/format";
import { Section } from "@/parts/Page";

interface Kept {
  watts: number;
  usdPerKwh: number;
}

const NAME = "sparewatt-electricity";
const USUAL: Kept = { watts: 150, usdPerKwh: 0.25 };

function read(): Kept {
  try {
    return { ...USUAL, ...(JSON.parse(localStorage.getItem(NAME) ?? "{}") as Partial<Kept>) };
  } catch {
    return USUAL;
  }
}

export function useElectricity() {
  const [kept, setKept] = useState(read);
  const change = (changed: Partial<Kept>) => {
    const next = { ...kept, ...changed };
    localStorage.setItem(NAME, JSON.stringify(next));
    setKept(next);
  };
  return { ...kept, change };
}

/** Dollars a day: what the node measured while it worked, for as long as it did; else what its owner says, all day. */
export function powerCost(node: Standing["nodes"][number], { watts, usdPerKwh }: Kept): number {
  const hours = node.working_watts ? 24 * Math.min(1, node.utilisation) : 24;
  return ((node.working_watts ?? watts) / 1000) * hours * usdPerKwh;
}

/** What a node draws and what that costs: told by the owner, kept in this browser. */
export function Electricity({ watts, usdPerKwh, change, costPerDay }: ReturnType<typeof useElectricity> & { costPerDay: number }) {
  return (
    <Section title="Electricity">
      <div className="card flex flex-wrap gap-4 p-4">
        <Figure name="Watts a node draws" value={watts} step={10} onChange={(value) => change({ watts: value })} />
        <Figure name="$ per kWh" value={usdPerKwh} step={0.01} onChange={(value) => change({ usdPerKwh: value })} />
        <p className="small max-w-[40ch] self-end text-muted">
          Counted: {usd(costPerDay)} a day. Where a node measures its own power, that counts while it works; else these watts do, all day. Kept in this browser.
        </p>
      </div>
    </Section>
  );
}

function Figure({ name, value, step, onChange }: { name: string; value: number; step: number; onChange: (value: number) => void }) {
  return (
    <label className="space-y-1">
      <span className="small block text-muted">{name}</span>
      <input
        type="number"
        min={0}
        step={step}
        defaultValue={value}
        onChange={(event) => Number.isFinite(event.target.valueAsNumber) && onChange(event.target.valueAsNumber)}
        className="field num w-32"
      />
    </label>
  );
}
