import { TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";
import { said } from "@/api/client";

/** What went wrong, in the gateway's words. */
export function ErrorNote({ error }: { error: unknown }) {
  if (!error) return null;
  return (
    <div role="alert" className="flex gap-2 rounded-md border border-offline p-3">
      <TriangleAlert size={16} className="mt-0.5 shrink-0 text-offline" aria-hidden />
      <p className="min-w-0 break-words">{said(error)}</p>
    </div>
  );
}

/** Nothing is here yet, and what to do about it. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="space-y-3 rounded-md border border-dashed border-line p-6">
      <p className="font-semibold">{title}</p>
      {children}
    </div>
  );
}
