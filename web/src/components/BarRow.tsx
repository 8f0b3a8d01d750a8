import type { ReactNode } from "react";

interface Props {
  label: ReactNode;
  /** From 0 to 1. */
  share: number;
  /** A CSS colour. */
  colour: string;
  value: string;
}

/** One row of a bar chart: label, bar, value. */
export function BarRow({ label, share, colour, value }: Props) {
  return (
    <div className="grid grid-cols-[10rem_1fr_5rem] items-center gap-3">
      <span className="small truncate">{label}</span>
      <span aria-hidden className="h-3 overflow-hidden rounded-md bg-line">
        <span className="block h-full" style={{ width: `${Math.min(1, share) * 100}%`, background: colour }} />
      </span>
      <span className="num small text-right">{value}</span>
    </div>
  );
}
