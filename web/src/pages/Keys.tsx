import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "@/api/client";
import { useKeys, useMe, useUsage } from "@/api/queries";
import type { ApiKey } from "@/api/types";
import { count } from "@/lib/format";
import { Button } from "@/parts/Button";
import { CopyLine } from "@/parts/CopyLine";
import { DataTable, type Column } from "@/parts/DataTable";
import { Drawer } from "@/parts/Drawer";
import { Empty, ErrorNote } from "@/parts/Note";
import { Page } from "@/parts/Page";
import { Time } from "@/parts/Time";
import { BudgetBar } from "./keys/BudgetBar";
import { KeyForm } from "./keys/KeyForm";
import { policyText } from "./keys/PolicyField";

type Open = { kind: "new" } | { kind: "edit"; key: ApiKey } | null;

export default function Keys() {
  const [keys, usage, me] = [useKeys(), useUsage("key"), useMe()];
  const [open, setOpen] = useState<Open>(null);
  const [made, setMade] = useState<ApiKey | null>(null);
  const [error, setError] = useState<unknown>(null);
  const queries = useQueryClient();
  const refresh = () => queries.invalidateQueries({ queryKey: ["/v1/keys"] });
  const revoke = async (key: ApiKey) => {
    if (!window.confirm(`Revoke ${key.name}? Whatever uses it stops within a second, for good.`)) return;
    setError(null);
    await api(`/v1/keys/${key.id}`, { method: "DELETE" }).catch(setError);
    await refresh();
  };
  const spent = new Map((usage.data?.data ?? []).map((line) => [line.name, Number(line.cost_usd)]));
  const live = (keys.data?.data ?? []).filter((key) => key.revoked_at === null);
  return (
    <Page
      title="Keys"
      lead="A key says who asks. Give each app its own, with a budget and a policy: then one that leaks does little harm."
      actions={
        <Button look="main" onClick={() => setOpen({ kind: "new" })}>
          Make a key
        </Button>
      }
    >
      {made?.key && <Made name={made.name} secret={made.key} onDone={() => setMade(null)} />}
      <ErrorNote error={keys.error ?? error} />
      {keys.data && (
        <DataTable
          id="keys"
          rows={live}
          columns={columnsOf(me.data?.account.id ?? "", spent, (key) => setOpen({ kind: "edit", key }), revoke)}
          rowKey={(row) => row.id}
          plain={(row) => ({ ...row })}
          empty={
            <Empty title="No key yet">
              <p className="text-muted">Make one here, or from a terminal:</p>
              <CopyLine label="make a key" text="sparewatt keys create 'my app' --budget 5/day" />
            </Empty>
          }
        />
      )}
      {open && (
        <Drawer title={open.kind === "new" ? "Make a key" : open.key.name} onClose={() => setOpen(null)}>
          <KeyForm
            known={open.kind === "edit" ? open.key : null}
            onSaved={(key) => {
              setOpen(null);
              if (key.key) setMade(key);
              void refresh();
            }}
          />
        </Drawer>
      )}
    </Page>
  );
}

function Made({ name, secret, onDone }: { name: string; secret: string; onDone: () => void }) {
  return (
    <div className="space-y-3 rounded-md border border-volt p-4" role="status">
      <p>
        <strong>{name}</strong> is ready. Copy it now: it is shown this once and kept nowhere.
      </p>
      <CopyLine label="the new key" text={secret} testId="new-key" />
      <CopyLine label="use it in a shell" text={`export SPAREWATT_API_KEY=${secret}`} />
      <Button onClick={onDone}>I have copied it</Button>
    </div>
  );
}

function columnsOf(own: string, spent: Map<string, number>, edit: (key: ApiKey) => void, revoke: (key: ApiKey) => void): Column<ApiKey>[] {
  return [
    {
      name: "Key",
      cell: (row) => (
        <span id={row.id}>
          <span className="font-semibold">{row.name}</span>
          <span className="num small block whitespace-nowrap text-muted">{row.prefix}…</span>
          {row.account_id !== own && <span className="num small block text-muted">of {row.account_id}</span>}
        </span>
      ),
      by: (row) => row.name,
    },
    { name: "May", cell: (row) => row.scopes.join(", ") },
    { name: "Budget", cell: (row) => <BudgetBar id={row.id} budget={row.budget} spent30d={spent.get(row.id) ?? 0} /> },
    { name: "Policy", cell: (row) => <code className="num small break-all">{policyText(row.policy) || "any node"}</code> },
    { name: "Per minute", cell: (row) => (row.requests_per_min ? `${count(row.requests_per_min)} requests` : "–"), isNumber: true },
    { name: "Used", cell: (row) => <Time at={row.last_used_at} />, by: (row) => row.last_used_at ?? 0 },
    { name: "Expires", cell: (row) => (row.expires_at ? <Time at={row.expires_at} /> : <span className="text-muted">never</span>) },
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
