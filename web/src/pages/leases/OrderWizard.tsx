import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { api } from "@/api/client";
import { LEASES_PATH } from "@/api/queries";
import type { LeaseCreated, LeaseQuote } from "@/api/schema";
import { Button } from "@/components/Button";
import { ErrorNotice } from "@/components/Notice";
import { count, usd } from "@/lib/format";
import { useSettled } from "@/lib/useSettled";
import { EMPTY_ORDER, orderBody, wordsOf, type OrderFields } from "./orderBody";
import { InsideStep, MachineStep, SecretsLine, WhatStep } from "./orderSteps";
import { QuotePanel } from "./QuotePanel";
import { WIZARD_STEPS, WizardSteps, type WizardStep } from "./WizardSteps";

const WAIT_MS = 10_000;

/** Orders a lease in steps. What it would meet and cost is asked while one types; nothing is held before the last button. */
export function OrderWizard({ onOrdered }: { onOrdered: (created: LeaseCreated) => void }) {
  const [fields, setFields] = useState(EMPTY_ORDER);
  const [step, setStep] = useState<WizardStep>("What");
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
  const at = WIZARD_STEPS.indexOf(step);
  const isLast = at === WIZARD_STEPS.length - 1;
  const onSubmit = (event: FormEvent) => {
    event.preventDefault();
    if (!isLast) return setStep(WIZARD_STEPS[at + 1] ?? step);
    order.mutate();
    void import("../Lease"); // the page that comes next: an auction may last a second
  };
  const hasSecrets = wordsOf(fields.secrets).length > 0;
  const isQuoted = asked !== "null" && quote.data && !quote.error && asked === JSON.stringify(orderBody(fields));
  const price = { quote: asked === "null" ? undefined : quote.data, error: quote.error };
  return (
    <form onSubmit={onSubmit} className="space-y-6">
      <WizardSteps step={step} onStep={setStep} />
      {step === "What" && <WhatStep fields={fields} set={set} />}
      {step === "Machine" && <MachineStep fields={fields} set={set} />}
      {step === "Inside" && <InsideStep fields={fields} set={set} />}
      <div aria-live="polite">{isLast ? <PriceStep {...price} /> : <PriceLine {...price} />}</div>
      {isLast && hasSecrets && <SecretsLine fields={fields} />}
      <ErrorNotice error={order.error} />
      <div className="flex flex-wrap items-center gap-3">
        {at > 0 && <Button onClick={() => setStep(WIZARD_STEPS[at - 1] ?? step)}>Back</Button>}
        {!isLast && (
          <Button look="main" type="submit">
            Next
          </Button>
        )}
        {isLast && !hasSecrets && (
          <Button look="main" type="submit" disabled={!isQuoted || quote.data?.able === 0 || order.isPending}>
            Order it
          </Button>
        )}
        {order.isPending && <span className="text-muted">Waiting for the chain …</span>}
      </div>
    </form>
  );
}

interface PriceProps {
  quote: LeaseQuote | undefined;
  error: Error | null;
}

/** Step 4: what it would meet and cost, before anything is held. */
function PriceStep({ quote, error }: PriceProps) {
  if (error) return <ErrorNotice error={error} />;
  return quote ? <QuotePanel quote={quote} /> : <p className="text-muted">Name an image, and you see who could run it and for how much.</p>;
}

/** On the steps before: in one line. */
function PriceLine({ quote, error }: PriceProps) {
  if (error) return <p className="small text-suspect">{error.message}</p>;
  if (!quote) return <p className="small text-muted">Nothing is sent or held before the last step.</p>;
  return (
    <p className="small text-muted" data-testid="price-line">
      <span className="num">{count(quote.able)}</span> of {count(quote.providers)} could serve it
      {quote.prices && (
        <>
          {", for "}
          <span className="num">{usd(quote.prices.least_usd)}</span> to <span className="num">{usd(quote.prices.dearest_usd)}</span> an hour
        </>
      )}
      {quote.total_usd !== null && (
        <>
          ; <span className="num">{usd(quote.total_usd)}</span> would be held as its deposit
        </>
      )}
      .
    </p>
  );
}
