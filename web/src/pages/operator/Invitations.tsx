import { useMutation } from "@tanstack/react-query";
import { api } from "@/api/client";
import { useNetwork } from "@/api/queries";
import type { OneTimeToken } from "@/api/schema";
import { Button } from "@/components/Button";
import { CopyableText } from "@/components/CopyableText";
import { ErrorNotice } from "@/components/Notice";
import { Section } from "@/components/Page";

export function Invitations() {
  const network = useNetwork();
  const invitation = useMutation({ mutationFn: () => api<OneTimeToken>("/v1/invites", { body: {} }) });
  return (
    <Section
      title="Invitations"
      aside={
        <Button onClick={() => invitation.mutate()} disabled={invitation.isPending}>
          Invite somebody
        </Button>
      }
    >
      <p className="max-w-[72ch] text-muted">
        {network.data?.signup === "open" ? "Anybody may sign up here now; an invitation works as well." : "One person may sign up with an invitation, within a week."}
      </p>
      <ErrorNotice error={invitation.error} />
      {invitation.data && <CopyableText label="the invitation" text={invitation.data.token} testId="invitation" />}
    </Section>
  );
}
