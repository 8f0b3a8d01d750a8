import type { ReactNode } from "react";
import { ErrorNotice } from "./Notice";
import { Time } from "./Time";

interface Props {
  /** What a query says of its last request. */
  error: unknown;
  /** When the reply that is shown came, in milliseconds. */
  seenMs: number;
  children: ReactNode;
}

/** Content that was fetched. While it cannot be fetched again it stays, greyed, with its age. */
export function LastKnown({ error, seenMs, children }: Props) {
  if (!error) return children;
  return (
    <>
      <ErrorNotice error={error} />
      <p className="text-muted" data-testid="last-known">
        What you see is the last that is known, from <Time at={seenMs / 1000} />.
      </p>
      <div className="space-y-6 grayscale">{children}</div>
    </>
  );
}
