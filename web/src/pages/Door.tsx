import { useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { api, rememberCsrf } from "@/api/client";
import { useNetwork } from "@/api/queries";
import type { Me } from "@/api/types";
import { Button } from "@/parts/Button";
import { CopyLine } from "@/parts/CopyLine";
import { ErrorNote } from "@/parts/Note";
import { Page } from "@/parts/Page";

/** Only to pages of our own. */
function nextOf(search: string): string | null {
  const next = new URLSearchParams(search).get("next");
  return next && /^\/(?![/\\])/.test(next) ? next : null;
}

export default function Door({ kind }: { kind: "login" | "signup" }) {
  const network = useNetwork();
  const isSignup = kind === "signup";
  const mode = network.data?.signup ?? "open";
  const search = useSearch();
  const other = isSignup ? "login" : "signup";
  return (
    <Page title={isSignup ? "Sign up" : "Log in"} lead={isSignup ? "An e-mail and a password. No wallet, no card." : undefined}>
      <div className="grid gap-6 lg:grid-cols-2">
        {isSignup && mode === "closed" ? <p>This network takes no new accounts. Ask its operator.</p> : <Form key={kind} isSignup={isSignup} needsInvite={mode === "invite"} />}
        <div className="min-w-0 space-y-3 text-muted">
          <p>The same from a terminal; it keeps a key for this machine:</p>
          <CopyLine label={isSignup ? "sign up from a terminal" : "log in from a terminal"} text={`sparewatt ${kind} --base-url ${location.origin}/v1`} />
          <p>
            {isSignup ? "You have an account? " : "No account yet? "}
            <Link href={`/${other}${search ? `?${search}` : ""}`} className="link">
              {isSignup ? "Log in" : "Sign up"}
            </Link>
          </p>
        </div>
      </div>
    </Page>
  );
}

function Form({ isSignup, needsInvite }: { isSignup: boolean; needsInvite: boolean }) {
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const [, go] = useLocation();
  const search = useSearch();
  const queries = useQueryClient();
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const said = new FormData(event.currentTarget);
    const body = { email: said.get("email"), password: said.get("password"), ...(said.get("invite") ? { invite: said.get("invite") } : {}) };
    setBusy(true);
    setError(null);
    try {
      const me = await api<Me>(isSignup ? "/v1/signup" : "/v1/login", { body });
      rememberCsrf(me.csrf_token);
      await queries.resetQueries();
      go(nextOf(search) ?? (isSignup ? "/playground" : "/"));
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  return (
    <form onSubmit={submit} className="card w-full max-w-md min-w-0 space-y-4 p-4">
      <label className="block space-y-1">
        <span>E-mail</span>
        <input className="field" type="email" name="email" autoComplete="email" required />
      </label>
      <label className="block space-y-1">
        <span>Password</span>
        <input className="field" type="password" name="password" autoComplete={isSignup ? "new-password" : "current-password"} required />
        {isSignup && <span className="small text-muted">Long is better than odd: a few words are fine.</span>}
      </label>
      {isSignup && needsInvite && (
        <label className="block space-y-1">
          <span>Invitation</span>
          <input className="field" name="invite" required />
          <span className="small text-muted">The operator of this network gives them out.</span>
        </label>
      )}
      <ErrorNote error={error} />
      <Button look="main" type="submit" disabled={isBusy}>
        {isBusy ? "One moment …" : isSignup ? "Sign up" : "Log in"}
      </Button>
    </form>
  );
}
