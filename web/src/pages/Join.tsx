import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "@/api/client";
import { useNodes } from "@/api/queries";
import { exact } from "@/lib/format";
import { Button } from "@/parts/Button";
import { CopyLine } from "@/parts/CopyLine";
import { ErrorNote } from "@/parts/Note";
import { Page, Section } from "@/parts/Page";
import { Progress } from "./join/Progress";

interface Token {
  token: string;
  expires_at: number;
  /** The whole line, where the gateway hands out the agent as well. */
  join_line?: string | null;
}

const ENVIRONMENT = "python3 -m venv ~/sparewatt && . ~/sparewatt/bin/activate";

export default function Join() {
  const nodes = useNodes(true, 1_500);
  const [known, setKnown] = useState<Set<string> | null>(null);
  const yours = (nodes.data?.data ?? []).filter((node) => node.yours);
  const token = useMutation({
    mutationFn: () => api<Token>("/v1/join-tokens", { body: {} }),
    onMutate: () => setKnown(new Set(yours.filter((node) => node.state !== "offline").map((node) => node.id))),
  });
  const line = token.data && lineOf(token.data);
  const fresh = yours.filter((node) => known && !known.has(node.id));
  const others = yours.filter((node) => !fresh.includes(node));
  return (
    <Page
      title="Lend a GPU"
      lead="Two lines on the machine that has the GPU. It dials out, so no port has to be open; it finds the model server that runs there, is measured, and gets its first job."
    >
      <Section title="1. Make room for the agent">
        <CopyLine label="make a Python environment" text={ENVIRONMENT} />
        <p className="small text-muted">
          A Python environment of its own, on that machine, with Python 3.11 or newer. Debian and Ubuntu want the package python3-venv for it.
        </p>
      </Section>
      <Section title="2. Run the line there, in the same terminal">
        {line ? (
          <div className="space-y-2">
            <CopyLine label="the join line" text={line} testId="join-line" />
            <p className="small text-muted">
              The token joins one machine to your account, until {exact(token.data?.expires_at ?? 0)}.
              {token.data?.join_line ? " The line installs the agent as well." : " This gateway hands out no agent: install Sparewatt in that environment first."}
            </p>
          </div>
        ) : (
          <Button look="main" disabled={token.isPending || !nodes.data} onClick={() => token.mutate()}>
            Make a line for this network
          </Button>
        )}
        <ErrorNote error={token.error ?? nodes.error} />
      </Section>
      <Section title="3. Watch it arrive">
        {fresh.length ? (
          fresh.map((node) => <Progress key={node.id} node={node} />)
        ) : (
          <Progress node={null} isWaiting={Boolean(line)} />
        )}
      </Section>
      {others.length > 0 && (
        <Section title={fresh.length ? "Your other nodes" : "Your nodes"}>
          {others.map((node) => (
            <Progress key={node.id} node={node} />
          ))}
        </Section>
      )}
    </Page>
  );
}

function lineOf(token: Token): string {
  return token.join_line ?? `SPAREWATT_NODE_TOKEN=${token.token} sparewatt node join ${location.origin}`;
}
