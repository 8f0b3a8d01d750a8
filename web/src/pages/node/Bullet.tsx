import { digits } from "@/lib/format";

/** Claimed against measured: the bar is what was measured, the mark what the owner says. */
export function Bullet({ name, unit, claimed, measured }: { name: string; unit: string; claimed: number | null; measured: number | null }) {
  const top = Math.max(claimed ?? 0, measured ?? 0, 1e-9) * 1.15;
  const place = (value: number) => `${(value / top) * 100}%`;
  return (
    <div className="grid grid-cols-[8rem_1fr] items-center gap-3">
      <span className="small text-muted">{name}</span>
      <div>
        <div className="relative h-3 rounded-md bg-line" aria-hidden>
          {measured !== null && <span className="absolute inset-y-0 left-0 rounded-md bg-online" style={{ width: place(measured) }} />}
          {claimed !== null && <span className="absolute -inset-y-1 w-0.5 bg-volt" style={{ left: place(claimed) }} />}
        </div>
        <p className="num small">
          {measured === null ? "not measured" : `${digits(measured)} ${unit} measured`}
          <span className="text-muted"> · {claimed === null ? "nothing claimed" : `${digits(claimed)} ${unit} claimed`}</span>
        </p>
      </div>
    </div>
  );
}
