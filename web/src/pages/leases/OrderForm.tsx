import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent, type InputHTMLAttributes } from "react";
import { api } from "@/api/client";
import { LEASES_PATH } from "@/api/queries";
import type { LeaseCreated, LeaseQuote } from "@/api/schema";
import { Button } from "@/components/Button";
import { Field } from "@/components/Field";
import { ErrorNotice } from "@/components/Notice";
import { useSettled } from "@/lib/useSettled";
import { EMPTY_ORDER, orderBody, type OrderFields } from "./orderBody";
import { OfferFacets } from "./OfferFacets";
import { QuotePanel } from "./QuotePanel";

const WAIT_MS = 10_000;

/** Orders a lease. What it would meet and cost is shown while one types; nothing is held before the button is pressed. */
export function OrderForm({ onOrdered }: { onOrdered: (created: LeaseCreated) => void }) {
  const [fields, setFields] = useState(EMPTY_ORDER);
  // A second click repeats the id of the first, so it orders nothing. A change of the order is a new request.
  const [id, setId] = useState(() => crypto.randomUUID());
  const client = useQueryClient();
  const asked = useSettled(JSON.stringify(orderBody(fields)));
  const quote = useQuery({
    queryKey: ["lease-quote", asked],
    queryFn: ({ signal }) => api<LeaseQuote>(`${LEASES_PATH}/dry-run`, { body: JSON.parse(asked), signal }),
    enabled: asked !== "null",
    placeholderData: (before) => before,
    retry: false,
  });
  const order = useMutation({
    mutationFn: () => api<LeaseCreated>(`${LEASES_PATH}?wait_ms=${WAIT_MS}`, { body: { ...orderBody(fields), id } }),
    onSuccess: (created) => {
      void client.invalidateQueries({ queryKey: [LEASES_PATH] });
      onOrdered(created);
    },
  });
  const set = (name: keyof OrderFields) => (value: string) => {
    setFields({ ...fields, [name]: value });
    setId(crypto.randomUUID());
  };
  const onSubmit = (event: FormEvent) => {
    event.preventDefault();
    order.mutate();
    void import("../Lease"); // the page that comes next: an auction may last a second
  };
  const isQuoted = quote.data && !quote.error && asked === JSON.stringify(orderBody(fields));
  return (
    <form onSubmit={onSubmit} className="space-y-4">
      <OfferFacets
        choice={fields}
        onChoose={(name, value) => set(name)(value)}
        price={<Text label="Highest price an hour, in $" value={fields.maxHourly} onText={set("maxHourly")} inputMode="decimal" placeholder="from the offers" />}
        hasTable={asked === "null"}
      />
      <Text label="Image" value={fields.image} onText={set("image")} placeholder="ghcr.io/me/train:1" required />
      <Text label="Command" value={fields.command} onText={set("command")} placeholder="the image's own" />
      <div className="grid gap-4 sm:grid-cols-3">
        <Text label="GPUs" value={fields.gpus} onText={set("gpus")} type="number" min={0} />
        <Text label="Processors" value={fields.cpus} onText={set("cpus")} inputMode="decimal" placeholder="1" />
        <Text label="Memory, in GB" value={fields.memoryGb} onText={set("memoryGb")} inputMode="decimal" placeholder="2" />
        <Text label="Disk, in GB" value={fields.diskGb} onText={set("diskGb")} inputMode="decimal" placeholder="10" />
        <Text label="For how long" value={fields.duration} onText={set("duration")} placeholder="90m, 12h, 7d" />
      </div>
      <Text label="Further conditions" value={fields.policy} onText={set("policy")} placeholder="vram_gb>=24 tier=verified" spellCheck={false} />
      <div aria-live="polite">
        {asked === "null" && <p className="text-muted">Name an image, and you see who could run it and for how much.</p>}
        <ErrorNotice error={quote.error} />
        {quote.data && !quote.error && <QuotePanel quote={quote.data} />}
      </div>
      <ErrorNotice error={order.error} />
      <div className="flex items-center gap-3">
        <Button look="main" type="submit" disabled={!isQuoted || quote.data.able === 0 || order.isPending}>
          Order it
        </Button>
        {order.isPending && <span className="text-muted">Waiting for the chain …</span>}
      </div>
    </form>
  );
}

function Text({ label, onText, ...rest }: { label: string; onText: (text: string) => void } & InputHTMLAttributes<HTMLInputElement>) {
  return (
    <Field label={label}>
      <input className="field num" onChange={(event) => onText(event.target.value)} {...rest} />
    </Field>
  );
}
