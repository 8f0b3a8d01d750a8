import { digits } from "@/lib/format";

interface Props {
  name: string;
  unit: string;
  claimed: number | null;
  measured: number | null;
}

/** The bar is the measured value, the mark on it the owner's claim. */
export function BulletChart({ name, unit, claimed, measured }: Props) {
  const axisMax = Math.max(claimed ?? 0, measured ?? 0, 1e-9) * 1.15;
  const percentOf = (value: number) => `${(value / axisMax) * 100}%`;
  return (
    <div className="grid grid-cols-[8rem_1fr] items-center gap-3">
      <span className="small text-muted">{name}</span>
      <div>
        <div className="relative h-3 rounded-md bg-line" aria-hidden>
          {measured !== null && <span className="absolute inset-y-0 left-0 rounded-md bg-online" style={{ width: percentOf(measured) }} />}
          {claimed !== null && <span className="absolute -inset-y-1 w-0.5 bg-volt" style={{ left: percentOf(claimed) }} />}
        </div>
        <p className="num small">
          {measured === null ? "not measured" : `${digits(measured)} ${unit} measured`}
          <span className="text-muted"> · {claimed === null ? "nothing claimed" : `${digits(claimed)} ${unit} claimed`}</span>
        </p>
      </div>
    </div>
  );
}
