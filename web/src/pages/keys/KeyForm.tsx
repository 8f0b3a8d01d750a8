import { useState, type FormEvent } from "react";
import { api } from "@/api/client";
import { useNetwork } from "@/api/queries";
import type { ApiKey } from "@/api/types";
import { Button } from "@/parts/Button";
import { ErrorNote } from "@/parts/Note";
import { PolicyField } from "./PolicyField";

const SCOPES = { inference: "ask models", lease: "rent GPUs", node: "join machines, see what they earn", admin: "look after keys and the account" };

/** A key's terms. What is left empty is no limit. */
export function KeyForm({ known, onSaved }: { known: ApiKey | null; onSaved: (key: ApiKey) => void }) {
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const network = useNetwork();
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const body = bodyOf(new FormData(event.currentTarget), known);
      onSaved(await api<ApiKey>(known ? `/v1/keys/${known.id}` : "/v1/keys", { method: known ? "PATCH" : "POST", body }));
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  return (
    <form onSubmit={submit} className="space-y-4">
      <label className="block space-y-1">
        <span>Name</span>
        <input className="field" name="name" required maxLength={100} defaultValue={known?.name} placeholder="my app" />
      </label>
      {!known && (
        <fieldset className="space-y-1">
          <legend>What it may do</legend>
          <div className="grid gap-x-4 sm:grid-cols-2">
            {Object.entries(SCOPES).map(([scope, meaning]) => (
              <label key={scope} className="flex min-h-9 items-center gap-2">
                <input type="checkbox" name="scopes" value={scope} defaultChecked={scope === "inference"} className="accent-volt" />
                <span>
                  {scope} <span className="small text-muted">{meaning}</span>
                </span>
              </label>
            ))}
          </div>
        </fieldset>
      )}
      <div className="grid gap-4 sm:grid-cols-2">
        <label className="block space-y-1">
          <span>Budget, in $</span>
          <input className="field num" name="budget" inputMode="decimal" defaultValue={known?.budget?.usd} placeholder="none" />
        </label>
        <label className="block space-y-1">
          <span>per</span>
          <select className="field" name="period" defaultValue={known?.budget?.period ?? "day"}>
            <option>day</option>
            <option>week</option>
            <option>month</option>
          </select>
        </label>
        <label className="block space-y-1">
          <span>Requests per minute</span>
          <input className="field num" name="rpm" type="number" min={1} defaultValue={known?.requests_per_min ?? ""} placeholder="the network's" />
        </label>
        {!known && (
          <label className="block space-y-1">
            <span>Expires after, in days</span>
            <input className="field num" name="days" type="number" min={1} max={3650} placeholder="never" />
          </label>
        )}
      </div>
      <PolicyField known={known?.policy} model={network.data?.models[0]?.id ?? null} />
      <ErrorNote error={error} />
      <Button look="main" type="submit" disabled={isBusy}>
        {known ? "Save" : "Make the key"}
      </Button>
    </form>
  );
}

function bodyOf(said: FormData, known: ApiKey | null): Record<string, unknown> {
  const text = (name: string) => String(said.get(name) ?? "").trim();
  const [budget, rpm, days, policy] = [text("budget"), text("rpm"), text("days"), text("policy")];
  return {
    name: text("name"),
    budget: budget ? { usd: budget, period: text("period") } : null,
    requests_per_min: rpm ? Number(rpm) : null,
    policy: policy ? (policy.startsWith("{") ? (JSON.parse(policy) as unknown) : policy) : null,
    ...(known ? {} : { scopes: said.getAll("scopes") }),
    ...(days ? { expires_in_s: Number(days) * 86_400 } : {}),
  };
}
