import { useState } from "react";
import type { NodeUtilisation } from "@/api/schema";
import { Section } from "@/components/Page";
import { usd } from "@/lib/format";

interface PowerSettings {
  watts: number;
  usdPerKwh: number;
}

const STORAGE_KEY = "sparewatt-electricity";
const DEFAULTS: PowerSettings = { watts: 150, usdPerKwh: 0.25 };

function storedSettings(): PowerSettings {
  try {
    return { ...DEFAULTS, ...(JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "{}") as Partial<PowerSettings>) };
  } catch {
    return DEFAULTS;
  }
}

/** The owner's figures for power and its price. They are stored in this browser only. */
export function usePowerSettings() {
  const [settings, setSettings] = useState(storedSettings);
  const change = (changed: Partial<PowerSettings>) => {
    const next = { ...settings, ...changed };
    localStorage.setItem(STORAGE_KEY, JSON.stringify(next));
    setSettings(next);
  };
  return { ...settings, change };
}

/** Dollars per day: the measured power while the node worked, else the owner's figure for the whole day. */
export function powerCostPerDay(node: NodeUtilisation, { watts, usdPerKwh }: PowerSettings): number {
  const hours = node.working_watts ? 24 * Math.min(1, node.utilisation) : 24;
  return ((node.working_watts ?? watts) / 1000) * hours * usdPerKwh;
}

export function Electricity({ watts, usdPerKwh, change, costPerDay }: ReturnType<typeof usePowerSettings> & { costPerDay: number }) {
  return (
    <Section title="Electricity">
      <div className="card flex flex-wrap gap-4 p-4">
        <NumberField name="Watts per node" value={watts} step={10} onChange={(value) => change({ watts: value })} />
        <NumberField name="$ per kWh" value={usdPerKwh} step={0.01} onChange={(value) => change({ usdPerKwh: value })} />
        <p className="small max-w-[40ch] self-end text-muted">
          Your nodes cost {usd(costPerDay)} a day. If a node measures its own power, that counts for the time it worked; else these watts count for the
          whole day. Both figures are stored in this browser only.
        </p>
      </div>
    </Section>
  );
}

function NumberField({ name, value, step, onChange }: { name: string; value: number; step: number; onChange: (value: number) => void }) {
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
