import type { ReactNode } from "react";

/** A grid of named values. */
export function Details({ children }: { children: ReactNode }) {
  return <dl className="card grid grid-cols-2 gap-3 p-4 sm:grid-cols-4">{children}</dl>;
}

export function Detail({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className="min-w-0">
      <dt className="small text-muted">{name}</dt>
      <dd className="num break-words">{children}</dd>
    </div>
  );
}
