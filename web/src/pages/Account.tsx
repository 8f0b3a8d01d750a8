import { useState, type FormEvent } from "react";
import { api } from "@/api/client";
import { useMe } from "@/api/queries";
import { Button } from "@/parts/Button";
import { ErrorNote } from "@/parts/Note";
import { Page, Section } from "@/parts/Page";
import { Stat, Stats } from "@/parts/Stat";

export default function Account() {
  const me = useMe();
  if (!me.data) return null;
  const { account } = me.data;
  return (
    <Page title="Account" lead="Whose keys, nodes and money these are.">
      <Stats>
        <Stat name="E-mail">
          <span className="text-[14px] break-all">{account.email ?? "–"}</span>
        </Stat>
        <Stat name="Role">{account.role}</Stat>
        <Stat name="Id">
          <span className="text-[14px] break-all">{account.id}</span>
        </Stat>
        <Stat name="Chain address" hint="Made for you; what your nodes earn is settled to it">
          <span className="text-[14px] break-all">{account.chain_address ?? "none yet"}</span>
        </Stat>
      </Stats>
      <Section title="Change the password">
        <Password />
      </Section>
    </Page>
  );
}

function Password() {
  const [error, setError] = useState<unknown>(null);
  const [state, setState] = useState<"idle" | "busy" | "done">("idle");
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const said = new FormData(form);
    setState("busy");
    setError(null);
    try {
      await api("/v1/password", { body: { current_password: said.get("current"), password: said.get("password") } });
      form.reset();
      setState("done");
    } catch (failed) {
      setError(failed);
      setState("idle");
    }
  };
  return (
    <form onSubmit={submit} className="card max-w-md space-y-4 p-4">
      <label className="block space-y-1">
        <span>Current password</span>
        <input className="field" type="password" name="current" autoComplete="current-password" required />
      </label>
      <label className="block space-y-1">
        <span>New password</span>
        <input className="field" type="password" name="password" autoComplete="new-password" required />
      </label>
      <ErrorNote error={error} />
      <div className="flex items-center gap-3">
        <Button look="main" type="submit" disabled={state === "busy"}>
          Change it
        </Button>
        <span role="status">{state === "done" ? "Changed. Every other session has ended." : ""}</span>
      </div>
    </form>
  );
}
