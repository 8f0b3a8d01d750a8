import type { ReactNode } from "react";
import { Link, useLocation } from "wouter";
import { useMe } from "@/api/queries";
import { ErrorNote } from "@/parts/Note";
import { Page } from "@/parts/Page";

/** Pages for those who are logged in; to others they say how. */
export function Known({ to, children }: { to: string; children: ReactNode }) {
  const me = useMe();
  const [place] = useLocation();
  if (me.data) return children;
  if (me.isPending) return <p className="p-6 text-muted">Loading …</p>;
  const next = `?next=${encodeURIComponent(place)}`;
  return (
    <Page title={`Log in to ${to}`} lead="What belongs to an account is shown to that account alone.">
      <ErrorNote error={me.error} />
      <p className="flex gap-4">
        <Link href={`/login${next}`} className="link">
          Log in
        </Link>
        <Link href={`/signup${next}`} className="link">
          Sign up
        </Link>
      </p>
    </Page>
  );
}
