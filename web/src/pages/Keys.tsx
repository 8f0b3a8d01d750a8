import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "@/api/client";
import { useKeys, useMe, useUsage } from "@/api/queries";
import type { ApiKey, CreatedKey, RevokedKey } from "@/api/schema";
import { Button } from "@/components/Button";
import { CopyableText } from "@/components/CopyableText";
import { DataTable, type Column } from "@/components/DataTable";
import { Drawer } from "@/components/Drawer";
import { EmptyState, ErrorNotice } from "@/components/Notice";
import { Page } from "@/components/Page";
import { Time } from "@/components/Time";
import { count, plural } from "@/lib/format";
import { BudgetBar } from "./keys/BudgetBar";
import { KeyForm } from "./keys/KeyForm";
import { policyText } from "./keys/PolicyField";

export default function Keys() {
  const [keys, usage, me] = [useKeys(), useUsage("key"), useMe()];
  const [edited, setEdited] = useState<ApiKey | "new" | null>(null);
  const [created, setCreated] = useState<CreatedKey | null>(null);
  const queries = useQueryClient();
  const refresh = () => queries.invalidateQueries({ queryKey: ["/v1/keys"] });
  const revocation = useMutation({
    mutationFn: (key: ApiKey) => api<RevokedKey>(`/v1/keys/${key.id}`, { method: "DELETE" }),
    onSettled: refresh,
  });
  const revoke = (key: ApiKey) => {
    if (window.confirm(`Revoke ${key.name}? Programs that use it are refused within a second, for good.`)) revocation.mutate(key);
  };
  const spent = new Map((usage.data?.data ?? []).map((group) => [group.name, Number(group.cost_usd)]));
  const own = me.data?.account.id ?? "";
  const active = (keys.data?.data ?? []).filter((key) => key.revoked_at === null);
  const others = active.filter((key) => key.account_id !== own);
  const [showsOthers, setShowsOthers] = useState(false);
  return (
    <Page
      title="Keys"
      lead="Programs send their requests with a key. Give each program its own, with a budget and a policy: then a leaked key does little harm."
      actions={
        <Button look="main" onClick={() => setEdited("new")}>
          Make a key
        </Button>
      }
    >
      {created && <CreatedKeyNotice created={created} onDone={() => setCreated(null)} />}
      <ErrorNotice error={keys.error ?? revocation.error} />
      {others.length > 0 && (
        <label className="flex items-center gap-2">
          <input type="checkbox" checked={showsOthers} onChange={(event) => setShowsOthers(event.target.checked)} />
          Show the {plural(others.length, "key")} of other accounts too
        </label>
      )}
      {keys.data && (
        <DataTable
          id="keys"
          rows={active.filter((key) => showsOthers || key.account_id === own)}
          columns={columnsOf(own, spent, setEdited, revoke)}
          rowKey={(row) => row.id}
          empty={
            <EmptyState title="No key yet">
              <p className="text-muted">Make one here, or in a terminal:</p>
              <CopyableText label="make a key" text="sparewatt keys create 'my app' --budget 5/day" />
            </EmptyState>
          }
        />
      )}
      {edited && (
        <Drawer title={edited === "new" ? "Make a key" : edited.name} onClose={() => setEdited(null)}>
          <KeyForm
            existing={edited === "new" ? null : edited}
            onSaved={(key) => {
              setEdited(null);
              if ("key" in key) setCreated(key);
              void refresh();
            }}
          />
        </Drawer>
      )}
    </Page>
  );
}

function CreatedKeyNotice({ created, onDone }: { created: CreatedKey; onDone: () => void }) {
  return (
    <div className="space-y-3 rounded-md border border-volt p-4" role="status">
      <p>
        <strong>{created.name}</strong> is ready. Copy the key now: the network stores only its hash and cannot show it again.
      </p>
      <CopyableText label="the new key" text={created.key} testId="new-key" />
      <CopyableText label="use it in a shell" text={`export SPAREWATT_API_KEY=${created.key}`} />
      <Button onClick={onDone}>I have copied it</Button>
    </div>
  );
}

function columnsOf(ownAccount: string, spent: Map<string, number>, edit: (key: ApiKey) => void, revoke: (key: ApiKey) => void): Column<ApiKey>[] {
  return [
    {
      name: "Key",
      cell: (row) => (
        <span id={row.id}>
          <span className="font-semibold">{row.name}</span>
          <span className="num small block whitespace-nowrap text-muted">{row.prefix}…</span>
          {row.account_id !== ownAccount && <span className="num small block text-muted">of {row.account_id}</span>}
        </span>
      ),
      sortBy: (row) => row.name,
    },
    { name: "Scopes", cell: (row) => row.scopes.join(", ") },
    { name: "Budget", cell: (row) => <BudgetBar apiKey={row} spent30d={spent.get(row.id) ?? 0} /> },
    { name: "Policy", cell: (row) => <code className="num small break-all">{policyText(row.policy) || "any node"}</code> },
    { name: "Per minute", cell: (row) => (row.requests_per_min ? `${count(row.requests_per_min)} requests` : "–"), isNumber: true },
    { name: "Last used", cell: (row) => <Time at={row.last_used_at} />, sortBy: (row) => row.last_used_at ?? 0 },
    { name: "Expires", cell: (row) => <Time at={row.expires_at} /> },
    {
      name: "",
      cell: (row) => (
        <span className="flex gap-2">
          <Button onClick={() => edit(row)} aria-label={`Change ${row.name}`}>
            Change
          </Button>
          <Button look="danger" onClick={() => revoke(row)} aria-label={`Revoke ${row.name}`}>
            Revoke
          </Button>
        </span>
      ),
    },
  ];
}
