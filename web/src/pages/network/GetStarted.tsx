import type { ReactNode } from "react";
import { Link } from "wouter";
import { CopyableText } from "@/components/CopyableText";
import { JoinHint } from "@/components/JoinHint";

/** The two first steps of a newcomer: send a request, or lend a GPU. */
export function GetStarted({ isLoggedIn, model = "MODEL" }: { isLoggedIn: boolean; model?: string | undefined }) {
  const body = `{"model": "${model}", "stream": true, "messages": [{"role": "user", "content": "Say hello"}]}`;
  const curl = `curl -N ${location.origin}/v1/chat/completions -H "Authorization: Bearer $SPAREWATT_API_KEY" -H 'Content-Type: application/json' -d '${body}'`;
  return (
    <div className="grid gap-4 lg:grid-cols-2">
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
