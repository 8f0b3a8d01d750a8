import type { ReactNode } from "react";

/** One figure with its name and unit; `hint` is shown on hover. */
export function Stat({ name, unit, children, hint }: { name: string; unit?: string; children: ReactNode; hint?: string }) {
  return (
    <div className="min-w-0" title={hint}>
      <div className="small text-muted">{name}</div>
      <div className="text-[20px] leading-tight">
        <span className="num">{children}</span>
        {unit && <span className="small whitespace-nowrap text-muted"> {unit}</span>}
      </div>
    </div>
  );
}

export function Stats({ children }: { children: ReactNode }) {
  return <div className="card grid grid-cols-2 gap-4 p-4 sm:grid-cols-3 lg:grid-cols-6">{children}</div>;
}
