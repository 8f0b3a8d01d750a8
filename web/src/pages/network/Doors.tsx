import type { ReactNode } from "react";
import { Link } from "wouter";
import { CopyLine } from "@/parts/CopyLine";
import { JoinHint } from "@/parts/JoinHint";

/** What to do here first. */
export function Doors({ isKnown, model = "MODEL" }: { isKnown: boolean; model?: string | undefined }) {
  const question = `{"model": "${model}", "stream": true, "messages": [{"role": "user", "content": "Say hello"}]}`;
  const curl = `curl -N ${location.origin}/v1/chat/completions -H "Authorization: Bearer $SPAREWATT_API_KEY" -H 'Content-Type: application/json' -d '${question}'`;
  return (
    <div className="grid gap-4 lg:grid-cols-2">
      <Door title="Use it" lead={isKnown ? "Any OpenAI client works: set its base URL and your key." : "Sign up, make a key, and any OpenAI client works."}>
        <CopyLine label="a first request" text={curl} />
        <p className="flex gap-4">
          <Link href={isKnown ? "/playground" : "/signup"} className="link">
            {isKnown ? "Open the playground" : "Sign up"}
          </Link>
          <Link href="/keys" className="link">
            Make a key
          </Link>
        </p>
      </Door>
      <Door title="Lend a GPU" lead="A machine joins by one line. It finds its GPU and model server, is measured, and earns.">
        <JoinHint />
      </Door>
    </div>
  );
}

function Door({ title, lead, children }: { title: string; lead: string; children: ReactNode }) {
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
