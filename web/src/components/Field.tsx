import type { ReactNode } from "react";

/** A form field: its label above it, an optional hint below. */
export function Field({ label, hint, children }: { label: string; hint?: ReactNode; children: ReactNode }) {
  return (
    <label className="block space-y-1">
      <span>{label}</span>
      {children}
      {hint && <span className="small block text-muted">{hint}</span>}
    </label>
  );
}
