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
  return (
    <Page
      title="Lend a GPU"
      lead="One line on the machine that has the GPU. It dials out, so no port has to be open; it finds the model server that runs there, is measured, and gets its first job."
    >
      <Section title="1. Copy the line">
        {line ? (
          <div className="space-y-2">
            <CopyLine label="the join line" text={line} testId="join-line" />
            <p className="small text-muted">
              The token joins one machine to your account, until {exact(token.data?.expires_at ?? 0)}.
              {token.data?.join_line ? " The line installs the agent as well." : " The agent has to be installed there."}
            </p>
          </div>
        ) : (
          <Button look="main" disabled={token.isPending || !nodes.data} onClick={() => token.mutate()}>
            Make a line for this network
          </Button>
        )}
        <ErrorNote error={token.error ?? nodes.error} />
      </Section>
      <Section title="2. Watch it arrive">
        {fresh.length ? (
          fresh.map((node) => <Progress key={node.id} node={node} />)
        ) : (
          <Progress node={null} isWaiting={Boolean(line)} />
        )}
      </Section>
      {yours.length > 0 && (
        <Section title="Your nodes">
          {yours.map((node) => (
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
