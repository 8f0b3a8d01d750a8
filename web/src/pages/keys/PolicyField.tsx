import { useQuery } from "@tanstack/react-query";
import { useDeferredValue, useState } from "react";
import { api } from "@/api/client";
import type { List, Node } from "@/api/types";
import { count } from "@/lib/format";

interface Reply extends List<Node> {
  total?: number;
  funnel?: { filter: string; dropped: number }[];
}

/** As it was written: a line, or an object. */
export function policyText(policy: unknown): string {
  return policy ? (typeof policy === "string" ? policy : JSON.stringify(policy)) : "";
}

/** A policy as one line, with how many nodes it leaves right now. */
export function PolicyField({ known, model }: { known: unknown; model: string | null }) {
  const [text, setText] = useState(policyText(known));
  const asked = useDeferredValue(text.trim());
  const isLine = asked !== "" && !asked.startsWith("{");
  const left = useQuery({
    queryKey: ["policy", asked],
    queryFn: ({ signal }) => api<Reply>(`/v1/nodes?q=${encodeURIComponent(asked)}`, { signal }),
    enabled: isLine,
    retry: false,
    placeholderData: (before) => before,
  });
  return (
    <label className="block space-y-1">
      <span>Policy: which nodes may serve it</span>
      <textarea
        className="field num"
        name="policy"
        rows={2}
        spellCheck={false}
        value={text}
        onChange={(event) => setText(event.target.value)}
        placeholder="region=EU gpu_class>=rtx24 max_price=0.30"
      />
      <span className="small block text-muted" role="status">
        {!isLine && (asked ? "An object is checked when it is saved." : `Any node${model ? ` that has the model, such as ${model}` : ""}.`)}
        {isLine && left.error && <span className="text-offline">{left.error.message}</span>}
        {isLine && !left.error && left.data && `${count(left.data.data.length)} of ${count(left.data.total ?? 0)} nodes are left.`}
      </span>
    </label>
  );
}
