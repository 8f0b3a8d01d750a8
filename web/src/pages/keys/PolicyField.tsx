import { useQuery } from "@tanstack/react-query";
import { useDeferredValue, useState } from "react";
import { api } from "@/api/client";
import type { ApiKey, NodeList } from "@/api/schema";
import { Field } from "@/components/Field";
import { count } from "@/lib/format";

/** A policy as its author wrote it: one line, or a JSON object. */
export function policyText(policy: ApiKey["policy"]): string {
  return policy ? (typeof policy === "string" ? policy : JSON.stringify(policy)) : "";
}

/** A field for a policy that shows how many nodes the policy allows now. */
export function PolicyField({ initial, model }: { initial: ApiKey["policy"]; model: string | null }) {
  const [text, setText] = useState(policyText(initial));
  const policy = useDeferredValue(text.trim());
  const isLine = policy !== "" && !policy.startsWith("{");
  const allowed = useQuery({
    queryKey: ["policy", policy],
    queryFn: ({ signal }) => api<NodeList>(`/v1/nodes?limit=1&q=${encodeURIComponent(policy)}`, { signal }),
    enabled: isLine,
    retry: false,
    placeholderData: (before) => before,
  });
  const status = (
    <span role="status">
      {!policy && `Any node${model ? ` that has the model, such as ${model}` : ""}.`}
      {policy && !isLine && "A JSON object is checked when you save it."}
      {isLine && allowed.error && <span className="text-offline">{allowed.error.message}</span>}
      {isLine && !allowed.error && allowed.data && `${count(allowed.data.allowed ?? allowed.data.data.length)} of ${count(allowed.data.total ?? 0)} nodes are left.`}
    </span>
  );
  return (
    <Field label="Policy: which nodes may serve its requests" hint={status}>
      <textarea
        className="field num"
        name="policy"
        rows={2}
        spellCheck={false}
        value={text}
        onChange={(event) => setText(event.target.value)}
        placeholder="region=EU gpu_class>=rtx24 max_price=0.30"
      />
    </Field>
  );
}
