import { useMutation } from "@tanstack/react-query";
import type { FormEvent } from "react";
import { api } from "@/api/client";
import { useMe } from "@/api/queries";
import { Button } from "@/components/Button";
import { Field } from "@/components/Field";
import { ErrorNotice } from "@/components/Notice";
import { Page, Section } from "@/components/Page";
import { Stat, Stats } from "@/components/Stat";

export default function Account() {
  const me = useMe();
  if (!me.data) return null;
  const { account } = me.data;
  return (
    <Page title="Account" lead="Your keys, nodes and money belong to this account.">
      <Stats>
        <Stat name="E-mail">
          <span className="text-[14px] break-all">{account.email ?? "–"}</span>
        </Stat>
        <Stat name="Role">{account.role}</Stat>
        <Stat name="Id">
          <span className="text-[14px] break-all">{account.id}</span>
        </Stat>
        <Stat name="Chain address" hint="The network made it for you. What your nodes earn is settled to it.">
          <span className="text-[14px] break-all">{account.chain_address ?? "none yet"}</span>
        </Stat>
      </Stats>
      <Section title="Change the password">
        <PasswordForm />
      </Section>
    </Page>
  );
}

function PasswordForm() {
  const change = useMutation({
    mutationFn: (form: HTMLFormElement) => {
      const input = new FormData(form);
      return api("/v1/password", { body: { current_password: input.get("current"), password: input.get("password") } });
    },
    onSuccess: (_, form) => form.reset(),
  });
  const onSubmit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    change.mutate(event.currentTarget);
  };
  return (
    <form onSubmit={onSubmit} className="card max-w-md space-y-4 p-4">
      <Field label="Current password">
        <input className="field" type="password" name="current" autoComplete="current-password" required />
      </Field>
      <Field label="New password">
        <input className="field" type="password" name="password" autoComplete="new-password" required />
      </Field>
      <ErrorNotice error={change.error} />
      <div className="flex items-center gap-3">
        <Button look="main" type="submit" disabled={change.isPending}>
          Change the password
        </Button>
        <span role="status">{change.isSuccess ? "The password is changed. All other sessions have ended." : ""}</span>
      </div>
    </form>
  );
}
