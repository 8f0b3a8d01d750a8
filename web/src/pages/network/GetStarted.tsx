import type { ReactNode } from "react";
import { Link } from "wouter";
import { CopyableText } from "@/components/CopyableText";
import { JoinHint } from "@/components/JoinHint";

interface Props {
  isLoggedIn: boolean;
  model?: string | undefined;
  /** Without a chain there are no leases. */
  hasChain: boolean;
}

/** The first steps of a newcomer: send a request, lend a GPU, or rent one. */
export function GetStarted({ isLoggedIn, model = "MODEL", hasChain }: Props) {
  const body = `{"model": "${model}", "stream": true, "messages": [{"role": "user", "content": "Say hello"}]}`;
  const curl = `curl -N ${location.origin}/v1/chat/completions -H "Authorization: Bearer $SPAREWATT_API_KEY" -H 'Content-Type: application/json' -d '${body}'`;
  return (
    <div className={`grid gap-4 ${hasChain ? "lg:grid-cols-3" : "lg:grid-cols-2"}`}>
      <StartCard title="Use it" lead={isLoggedIn ? "Any OpenAI client works: set its base URL and your key." : "Sign up, make a key, and any OpenAI client works."}>
        <CopyableText label="a first request" text={curl} />
        <p className="flex gap-4">
          <Link href={isLoggedIn ? "/playground" : "/signup"} className="link">
            {isLoggedIn ? "Open the playground" : "Sign up"}
          </Link>
          <Link href="/keys" className="link">
            Make a key
          </Link>
        </p>
      </StartCard>
      <StartCard title="Lend a GPU" lead="One line joins a machine. The agent finds the GPU and the model server, is measured, and earns.">
        <JoinHint />
      </StartCard>
      {hasChain && (
        <StartCard title="Rent a GPU" lead="A whole machine for a while. Providers bid for your order, and validators decide; the price is shown before anything is held.">
          <CopyableText label="a first lease" text="sparewatt lease create --image ghcr.io/me/train:1 --duration 1h --dry-run" />
          <p className="flex gap-4">
            <Link href="/leases/new" className="link">
              Order a lease
            </Link>
            <Link href="/market" className="link">
              The order book
            </Link>
          </p>
        </StartCard>
      )}
    </div>
  );
}

function StartCard({ title, lead, children }: { title: string; lead: string; children: ReactNode }) {
  return (
    <section aria-label={title} className="card min-w-0 space-y-3 p-4">
      <div>
        <h2>{title}</h2>
        <p className="text-muted">{lead}</p>
      </div>
      {children}
    </section>
  );
}
