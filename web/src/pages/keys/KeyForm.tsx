import { useMutation } from "@tanstack/react-query";
import type { FormEvent } from "react";
import { api } from "@/api/client";
import { useNetwork } from "@/api/queries";
import type { ApiKey, BudgetPeriod, CreatedKey, KeyChange, NewKey, ScopeName } from "@/api/schema";
import { Button } from "@/components/Button";
import { Field } from "@/components/Field";
import { ErrorNotice } from "@/components/Notice";
import { PolicyField } from "./PolicyField";

const SCOPES: Record<ScopeName, string> = {
  inference: "send requests to models",
  lease: "rent GPUs",
  node: "join machines, see what they earn",
  admin: "manage keys and the account",
};
const PERIODS: BudgetPeriod[] = ["day", "week", "month"];

/** Makes a key, or changes `existing`. An empty field is no limit of the key's own. */
export function KeyForm({ existing, onSaved }: { existing: ApiKey | null; onSaved: (key: ApiKey | CreatedKey) => void }) {
  const network = useNetwork();
  const save = useMutation({
    mutationFn: async (input: FormData) =>
      existing
        ? api<ApiKey>(`/v1/keys/${existing.id}`, { method: "PATCH", body: changeOf(input) })
        : api<CreatedKey>("/v1/keys", { body: newKeyOf(input) }),
    onSuccess: onSaved,
  });
  const onSubmit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    save.mutate(new FormData(event.currentTarget));
  };
  return (
    <form onSubmit={onSubmit} className="space-y-4">
      <Field label="Name">
        <input className="field" name="name" required maxLength={100} defaultValue={existing?.name} placeholder="my app" />
      </Field>
      {!existing && (
        <fieldset className="space-y-1">
          <legend>Scopes: what it may do</legend>
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
        <Field label="Budget, in $">
          <input className="field num" name="budget" inputMode="decimal" defaultValue={existing?.budget?.usd} placeholder="none" />
        </Field>
        <Field label="per">
          <select className="field" name="period" defaultValue={existing?.budget?.period ?? "day"}>
            {PERIODS.map((period) => (
              <option key={period}>{period}</option>
            ))}
          </select>
        </Field>
        <Field label="Requests per minute">
          <input className="field num" name="rpm" type="number" min={1} defaultValue={existing?.requests_per_min ?? ""} placeholder="the network's limit" />
        </Field>
        {!existing && (
          <Field label="Expires after, in days">
            <input className="field num" name="days" type="number" min={1} max={3650} placeholder="never" />
          </Field>
        )}
      </div>
      <PolicyField initial={existing?.policy ?? null} model={network.data?.models[0]?.id ?? null} />
      <ErrorNotice error={save.error} />
      <Button look="main" type="submit" disabled={save.isPending}>
        {existing ? "Save" : "Make the key"}
      </Button>
    </form>
  );
}

function changeOf(input: FormData): KeyChange {
  const text = (name: string) => String(input.get(name) ?? "").trim();
  const [budget, rpm, policy] = [text("budget"), text("rpm"), text("policy")];
  return {
    name: text("name"),
    budget: budget ? { usd: budget, period: text("period") as BudgetPeriod } : null,
    requests_per_min: rpm ? Number(rpm) : null,
    policy: policy.startsWith("{") ? (JSON.parse(policy) as Record<string, unknown>) : policy || null,
  };
}

function newKeyOf(input: FormData): NewKey {
  const days = Number(input.get("days"));
  return { ...changeOf(input), scopes: input.getAll("scopes").map(String), ...(days ? { expires_in_s: days * 86_400 } : {}) };
}
