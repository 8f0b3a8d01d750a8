import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "@/api/client";
import { useNodes } from "@/api/queries";
import type { JoinToken } from "@/api/schema";
import { Button } from "@/components/Button";
import { CopyableText } from "@/components/CopyableText";
import { ErrorNotice } from "@/components/Notice";
import { Page, Section } from "@/components/Page";
import { exactTime } from "@/lib/format";
import { JoinProgress } from "./join/JoinProgress";

const MAKE_ENVIRONMENT = "python3 -m venv ~/sparewatt && . ~/sparewatt/bin/activate";

export default function Join() {
  const nodes = useNodes(true, 1_500);
  const [onlineBefore, setOnlineBefore] = useState<Set<string> | null>(null);
  const own = (nodes.data?.data ?? []).filter((node) => node.yours);
  const token = useMutation({
    mutationFn: () => api<JoinToken>("/v1/join-tokens", { body: {} }),
    onMutate: () => setOnlineBefore(new Set(own.filter((node) => node.state !== "offline").map((node) => node.id))),
  });
  const joining = own.filter((node) => onlineBefore && !onlineBefore.has(node.id));
  const others = own.filter((node) => !joining.includes(node));
  return (
    <Page
      title="Lend a GPU"
      lead="Run two lines on the machine that has the GPU. The agent dials out, so no port has to be open. It finds the model server on that machine, is measured, and gets its first job."
    >
      <Section title="1. Prepare the machine">
        <CopyableText label="make a Python environment" text={MAKE_ENVIRONMENT} />
        <p className="small text-muted">A Python environment for the agent. It needs Python 3.11 or newer; Debian and Ubuntu need the package python3-venv as well.</p>
      </Section>
      <Section title="2. Run one line in the same terminal">
        {token.data ? (
          <JoinLine token={token.data} />
        ) : (
          <Button look="main" disabled={token.isPending || !nodes.data} onClick={() => token.mutate()}>
            Make a join line
          </Button>
        )}
        <ErrorNotice error={token.error ?? nodes.error} />
      </Section>
      <Section title="3. Watch the node join">
        {joining.map((node) => (
          <JoinProgress key={node.id} node={node} />
        ))}
        {!joining.length && <JoinProgress node={null} isWaiting={token.isSuccess} />}
      </Section>
      {others.length > 0 && (
        <Section title={joining.length ? "Your other nodes" : "Your nodes"}>
          {others.map((node) => (
            <JoinProgress key={node.id} node={node} />
          ))}
        </Section>
      )}
    </Page>
  );
}

function JoinLine({ token: { token, join_line, expires_at } }: { token: JoinToken }) {
  return (
    <div className="space-y-2">
      <CopyableText
        label="the join line"
        text={join_line ?? `SPAREWATT_NODE_TOKEN=${token} sparewatt node join ${location.origin}`}
        testId="join-line"
      />
      <p className="small text-muted">
        The token joins one machine to your account. It expires at {exactTime(expires_at)}.
        {join_line ? " The line also installs the agent." : " This gateway does not serve the agent: install Sparewatt in that environment first."}
      </p>
    </div>
  );
}
