import type { Node, NodeSensors } from "@/api/schema";
import { Section } from "@/components/Page";
import { digits, gb, percent } from "@/lib/format";

/** 83 °C on a scale to 100 °C. */
const HOT = 0.83;
const VRAM_FULL = 0.97;

/** What the machine's sensors report now: temperature, utilisation, memory and power of each GPU. */
export function Gauges({ sensors, node }: { sensors: NodeSensors; node: Node }) {
  if (!sensors.gpus.length && sensors.power_watts === null) return null;
  return (
    <Section title="Sensors" aside={sensors.power_watts !== null && <span className="num small">{digits(sensors.power_watts)} W in all</span>}>
      <ul className="grid gap-4 sm:grid-cols-2 lg:grid-cols-3">
        {sensors.gpus.map((gpu, at) => {
          const { model = node.gpu, vram_bytes: total = null } = node.gpus[at] ?? {};
          const used = total !== null && gpu.vram_free_bytes !== null ? total - gpu.vram_free_bytes : null;
          return (
            <li key={at} className="card space-y-2 p-4">
              <p className="font-semibold">{model}</p>
              <Gauge name="Temperature" share={gpu.temperature_c && gpu.temperature_c / 100} text={`${digits(gpu.temperature_c ?? 0)} °C`} warnAt={HOT} />
              <Gauge name="Utilisation" share={gpu.utilisation} text={percent(gpu.utilisation)} />
              <Gauge name="VRAM" share={used && total && used / total} text={`${gb(used ?? 0)} of ${gb(total ?? 0)}`} warnAt={VRAM_FULL} />
              <p className="num small text-muted">{gpu.power_watts === null ? "power not reported" : `${digits(gpu.power_watts)} W`}</p>
            </li>
          );
        })}
      </ul>
    </Section>
  );
}

interface GaugeProps {
  name: string;
  share: number | null;
  text: string;
  warnAt?: number;
}

function Gauge({ name, share, text, warnAt = Infinity }: GaugeProps) {
  return (
    <div className="grid grid-cols-[6rem_1fr_auto] items-center gap-3">
      <span className="small text-muted">{name}</span>
      <span aria-hidden className="h-2 overflow-hidden rounded-md bg-line">
        <span className={`block h-full ${(share ?? 0) >= warnAt ? "bg-offline" : "bg-busy"}`} style={{ width: `${Math.min(1, share ?? 0) * 100}%` }} />
      </span>
      <span className="num small">{share === null ? "not reported" : text}</span>
    </div>
  );
}
