import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState, type FormEvent } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { api, rememberLogin } from "@/api/client";
import { useNetwork } from "@/api/queries";
import type { NewSession } from "@/api/schema";
import { Button } from "@/components/Button";
import { CopyableText } from "@/components/CopyableText";
import { Field } from "@/components/Field";
import { ErrorNotice } from "@/components/Notice";
import { Page } from "@/components/Page";

/** Only paths of this site: else a link to this page could send a visitor anywhere after the login. */
function nextPath(search: string): string | null {
  const next = new URLSearchParams(search).get("next");
  return next && /^\/(?![/\\])/.test(next) ? next : null;
}

export default function Login({ kind }: { kind: "login" | "signup" }) {
  const network = useNetwork();
  const search = useSearch();
  const isSignup = kind === "signup";
  const mode = network.data?.signup ?? "open";
  const other = isSignup ? "login" : "signup";
  const [link] = useState(readLink);
  return (
    <Page title={isSignup ? "Sign up" : "Log in"} lead={isSignup ? "An e-mail and a password. No wallet, no card." : undefined}>
      <div className="grid gap-6 lg:grid-cols-2">
        {link ? (
          <LinkLogin token={link} />
        ) : isSignup && mode === "closed" ? (
          <p>This network takes no new accounts. Ask its operator.</p>
        ) : (
          <LoginForm key={kind} isSignup={isSignup} needsInvite={isSignup && mode === "invite"} />
        )}
        <div className="min-w-0 space-y-3 text-muted">
          <p>The same in a terminal. It stores a key on that machine:</p>
          <CopyableText label={isSignup ? "sign up from a terminal" : "log in from a terminal"} text={`sparewatt ${kind} --base-url ${location.origin}/v1`} />
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

/** The token of a link that logs in, from the address's fragment. */
function readLink(): string | null {
  const token = location.hash.slice(1);
  return token.startsWith("link-sw-") ? token : null;
}

function firstPage({ account }: NewSession): string {
  return account.role === "operator" ? "/operate" : "/";
}

function LinkLogin({ token }: { token: string }) {
  const login = useLogin((input: string) => api<NewSession>("/v1/login/link", { body: { token: input } }), firstPage);
  const { mutate } = login;
  useEffect(() => {
    history.replaceState(null, "", location.pathname); // it is a secret, and works once
    mutate(token);
  }, [mutate, token]);
  return login.error ? <ErrorNotice error={login.error} /> : <p>Logging in …</p>;
}

function useLogin<Input>(enter: (input: Input) => Promise<NewSession>, start: (session: NewSession) => string) {
  const [, navigate] = useLocation();
  const search = useSearch();
  const queries = useQueryClient();
  return useMutation({
    mutationFn: enter,
    onSuccess: async (session) => {
      rememberLogin(session.csrf_token);
      await queries.resetQueries();
      navigate(nextPath(search) ?? start(session));
    },
  });
}

function LoginForm({ isSignup, needsInvite }: { isSignup: boolean; needsInvite: boolean }) {
  const login = useLogin(
    (input: FormData) => api<NewSession>(isSignup ? "/v1/signup" : "/v1/login", { body: Object.fromEntries(input) }),
    () => (isSignup ? "/playground" : "/"),
  );
  const onSubmit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    login.mutate(new FormData(event.currentTarget));
  };
  return (
    <form onSubmit={onSubmit} className="card w-full max-w-md min-w-0 space-y-4 p-4">
      <Field label="E-mail">
        <input className="field" type="email" name="email" autoComplete="email" required />
      </Field>
      <Field label="Password" hint={isSignup && "A long one is better than an odd one: a few words are fine."}>
        <input className="field" type="password" name="password" autoComplete={isSignup ? "new-password" : "current-password"} required />
      </Field>
      {needsInvite && (
        <Field label="Invitation" hint="The operator of this network hands them out.">
          <input className="field" name="invite" required />
        </Field>
      )}
      <ErrorNotice error={login.error} />
      <Button look="main" type="submit" disabled={login.isPending}>
        {login.isPending ? "One moment …" : isSignup ? "Sign up" : "Log in"}
      </Button>
    </form>
  );
}
