import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { api } from "@/api/client";
import { useGet } from "@/api/queries";
import type { AccountInfo, AccountList } from "@/api/schema";
import { Button } from "@/components/Button";
import { DataTable, type Column } from "@/components/DataTable";
import { Drawer } from "@/components/Drawer";
import { Field } from "@/components/Field";
import { ErrorNotice, Loading } from "@/components/Notice";
import { Section } from "@/components/Page";
import { Time } from "@/components/Time";

const PATH = "/v1/accounts";

export function Accounts() {
  const accounts = useGet<AccountList>(PATH);
  const [granted, setGranted] = useState<AccountInfo | null>(null);
  const queries = useQueryClient();
  const closing = useMutation({
    mutationFn: (account: AccountInfo) => api(`${PATH}/${account.id}/close`, { method: "POST", body: {} }),
    onSettled: () => queries.invalidateQueries({ queryKey: [PATH] }),
  });
  const close = (account: AccountInfo) => {
    if (window.confirm(`Close ${account.email ?? account.name}? Its keys and sessions stop at once. This cannot be undone.`)) closing.mutate(account);
  };
  return (
    <Section title="Accounts">
      <ErrorNotice error={accounts.error ?? closing.error} />
      {accounts.isPending && <Loading />}
      {accounts.data && (
        <DataTable id="accounts" rows={accounts.data.data} columns={columnsOf(setGranted, close)} rowKey={(row) => row.id} empty={<p className="text-muted">There is no account.</p>} />
      )}
      {granted && (
        <Drawer title={`Give credits to ${granted.email ?? granted.name}`} onClose={() => setGranted(null)}>
          <GrantForm account={granted} onDone={() => setGranted(null)} />
        </Drawer>
      )}
    </Section>
  );
}

function columnsOf(grant: (account: AccountInfo) => void, close: (account: AccountInfo) => void): Column<AccountInfo>[] {
  return [
    {
      name: "Account",
      cell: (row) => (
        <span>
          <span className="font-semibold">{row.email ?? row.name}</span>
          <span className="num small block text-muted">{row.id}</span>
        </span>
      ),
      sortBy: (row) => row.email ?? row.name,
    },
    { name: "Role", cell: (row) => row.role, sortBy: (row) => row.role },
    { name: "Since", cell: (row) => <Time at={row.created_at} />, sortBy: (row) => row.created_at },
    { name: "State", cell: (row) => (row.closed_at === null ? "open" : "closed") },
    {
      name: "",
      cell: (row) =>
        row.closed_at === null && (
          <span className="flex gap-2">
            <Button onClick={() => grant(row)} aria-label={`Give credits to ${row.email ?? row.name}`}>
              Give credits
            </Button>
            {row.email !== null && (
              <Button look="danger" onClick={() => close(row)} aria-label={`Close ${row.email}`}>
                Close
              </Button>
            )}
          </span>
        ),
    },
  ];
}

function GrantForm({ account, onDone }: { account: AccountInfo; onDone: () => void }) {
  const grant = useMutation({
    mutationFn: (input: FormData) => api("/v1/credits/grant", { body: { account: account.id, usd: input.get("usd"), memo: input.get("memo") || null } }),
    onSuccess: onDone,
  });
  const onSubmit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    grant.mutate(new FormData(event.currentTarget));
  };
  return (
    <form onSubmit={onSubmit} className="space-y-4">
      <Field label="Dollars" hint="Free credits: they are spent first, and leave the network only as pay of its nodes.">
        <input className="field" name="usd" inputMode="decimal" pattern="[0-9]+([.][0-9]+)?" required />
      </Field>
      <Field label="For what">
        <input className="field" name="memo" maxLength={200} />
      </Field>
      <ErrorNotice error={grant.error} />
      <Button look="main" type="submit" disabled={grant.isPending}>
        Give
      </Button>
    </form>
  );
}
