import type { ReactNode } from "react";
import { Link, useLocation } from "wouter";
import { useMe } from "@/api/queries";
import { ErrorNotice, Loading } from "@/components/Notice";
import { Page } from "@/components/Page";

/** Shows its content to visitors who are logged in, and to others how to log in. */
export function RequireLogin({ purpose, children }: { purpose: string; children: ReactNode }) {
  const me = useMe();
  const [path] = useLocation();
  if (me.data) return children;
  if (me.isPending) return <Loading />;
  const next = `?next=${encodeURIComponent(path)}`;
  return (
    <Page title={`Log in to ${purpose}`} lead="It is open to everybody who has an account. Without one you see the network, its models and live matching.">
      <ErrorNotice error={me.error} />
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
