import type { Node, Sensors } from "@/api/types";
import { digits, gb, percent } from "@/lib/format";
import { Section } from "@/parts/Page";

/** What the machine measures of itself right now: each GPU's temperature, power, use and memory. */
export function Gauges({ sensors, node }: { sensors: Sensors; node: Node }) {
  if (!sensors.gpus.length && sensors.power_watts === null) return null;
  return (
    <Section title="The machine now" aside={sensors.power_watts !== null && <span className="num small">{digits(sensors.power_watts)} W in all</span>}>
      <ul className="grid gap-4 sm:grid-cols-2 lg:grid-cols-3">
        {sensors.gpus.map((gpu, at) => {
          const total = node.gpus?.[at]?.vram_bytes ?? null;
          const used = total !== null && gpu.vram_free_bytes !== null ? total - gpu.vram_free_bytes : null;
          return (
            <li key={at} className="card space-y-2 p-4">
              <p className="font-semibold">{node.gpus?.[at]?.model ?? node.gpu}</p>
              <Gauge name="Temperature" share={gpu.temperature_c === null ? null : gpu.temperature_c / 100} text={`${digits(gpu.temperature_c ?? 0)} °C`} hot={0.83} />
              <Gauge name="Busy" share={gpu.utilisation} text={percent(gpu.utilisation)} hot={2} />
              <Gauge name="VRAM" share={used !== null && total ? used / total : null} text={used === null ? "" : `${gb(used)} of ${gb(total ?? 0)}`} hot={0.97} />
              <p className="num small text-muted">{gpu.power_watts === null ? "power not told" : `${digits(gpu.power_watts)} W`}</p>
            </li>
          );
        })}
      </ul>
    </Section>
  );
}

function Gauge({ name, share, text, hot }: { name: string; share: number | null; text: string; hot: number }) {
  return (
    <div className="grid grid-cols-[6rem_1fr_auto] items-center gap-3">
      <span className="small text-muted">{name}</span>
      <span aria-hidden className="h-2 overflow-hidden rounded-md bg-line">
        <span className={`block h-full ${share !== null && share >= hot ? "bg-offline" : "bg-busy"}`} style={{ width: `${Math.min(1, share ?? 0) * 100}%` }} />
      </span>
      <span className="num small">{share === null ? "not told" : text}</span>
    </div>
  );
}
