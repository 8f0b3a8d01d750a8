import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent, type ReactNode } from "react";
import { api } from "@/api/client";
import { leasePath, LEASES_PATH, useCredits } from "@/api/queries";
import type { Lease, LeaseChanged, LeaseUpdated } from "@/api/schema";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { Field } from "@/components/Field";
import { ErrorNotice } from "@/components/Notice";
import { duration, exactTime, usd } from "@/lib/format";
import { useSettled } from "@/lib/useSettled";
import { actionsOf, type LeaseAction } from "@/market/leaseSteps";
import { consequence } from "@/market/leaseText";
import { raisedCap } from "./raisedCap";

const WORDS: Record<LeaseAction, { button: string; yes: string }> = {
  pause: { button: "Pause", yes: "Pause it" },
  resume: { button: "Resume", yes: "Resume it" },
  reopen: { button: "New auction", yes: "Hold a new auction" },
  extend: { button: "Extend", yes: "Extend it" },
  "top-up": { button: "Top up", yes: "Add to the deposit" },
  close: { button: "Close", yes: "Close it" },
  cancel: { button: "Cancel", yes: "Cancel the order" },
};
const ENDS: LeaseAction[] = ["close", "cancel"];

/** What its renter may do now. Each says what it costs before it is done. */
export function LeaseActions({ lease }: { lease: Lease }) {
  const [asked, setAsked] = useState<LeaseAction | null>(null);
  const close = () => setAsked(null);
  return (
    <>
      {actionsOf(lease).map((action) => (
        <Button key={action} look={action === "resume" ? "main" : ENDS.includes(action) ? "danger" : "plain"} onClick={() => setAsked(action)}>
          {WORDS[action].button}
        </Button>
      ))}
      {asked && (
        <Dialog title={`${WORDS[asked].button} ${lease.name}`} onClose={close}>
          {asked === "top-up" ? <TopUp lease={lease} onDone={close} /> : asked === "extend" ? <Extend lease={lease} onDone={close} /> : <PlainAct action={asked} lease={lease} onDone={close} />}
        </Dialog>
      )}
    </>
  );
}

interface ActProps {
  lease: Lease;
  onDone: () => void;
}

/** Sends one act. A second click repeats the id of the first, so it is done once; other words are another act. */
function useAct<Reply>(action: LeaseAction, lease: Lease, words: string, onSuccess: (reply: Reply) => void) {
  const client = useQueryClient();
  const [ids] = useState(() => new Map<string, string>());
  return useMutation({
    mutationFn: (body: object) => {
      const id = ids.get(words) ?? crypto.randomUUID();
      ids.set(words, id);
      return api<Reply>(`${leasePath(lease.id)}/${action}`, { body: { ...body, id } });
    },
    onSuccess,
    onSettled: () => client.invalidateQueries({ queryKey: [LEASES_PATH] }),
  });
}

function PlainAct({ action, lease, onDone }: ActProps & { action: LeaseAction }) {
  const act = useAct<LeaseChanged>(action, lease, "", onDone);
  return (
    <>
      <p data-testid="consequence">{consequence(action, lease)}</p>
      <Answer action={action} isPending={act.isPending} error={act.error} onNo={onDone}>
        <Button look={ENDS.includes(action) ? "danger" : "main"} disabled={act.isPending} onClick={() => act.mutate({})} autoFocus>
          {WORDS[action].yes}
        </Button>
      </Answer>
    </>
  );
}

function TopUp({ lease, onDone }: ActProps) {
  const [amount, setAmount] = useState("1");
  const act = useAct<LeaseChanged>("top-up", lease, amount, onDone);
  const credits = useCredits();
  const { money, max_spend_usd, order } = lease;
  const cap = raisedCap({ deposited: money?.deposited_usd ?? "0", amount, maxSpend: max_spend_usd });
  const hourly = Number(order?.lease?.hourly_usd ?? 0);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    act.mutate({ usd: amount.trim(), ...(cap !== null && { max_spend: cap }) });
  };
  return (
    <form onSubmit={submit} className="space-y-4">
      <Field label="Amount, in $" hint={credits.data && `You have ${usd(credits.data.data.balance_usd)} of credits.`}>
        <input className="field num" inputMode="decimal" value={amount} onChange={(event) => setAmount(event.target.value)} required autoFocus />
      </Field>
      <p data-testid="consequence">
        It is taken from your credits now, and what the lease does not use comes back when it ends.
        {hourly > 0 && Number(amount) > 0 && ` At ${usd(hourly)} an hour it pays for ${duration((Number(amount) / hourly) * 3600)} more.`}
        {cap !== null && ` The lease may cost ${usd(max_spend_usd ?? 0)} at most; this raises that to ${usd(cap)}.`}
      </p>
      <Answer action="top-up" isPending={act.isPending} error={act.error} onNo={onDone}>
        <Button look="main" type="submit" disabled={act.isPending || !(Number(amount) > 0)}>
          {WORDS["top-up"].yes}
        </Button>
      </Answer>
    </form>
  );
}

function Extend({ lease, onDone }: ActProps) {
  const [longer, setLonger] = useState("1h");
  const [maxSpend, setMaxSpend] = useState("");
  const [unanswered, setUnanswered] = useState(false);
  const body = { duration: longer.trim(), ...(maxSpend.trim() && { max_spend: maxSpend.trim() }) };
  const words = JSON.stringify(body);
  const asked = useSettled(words);
  const plan = useQuery({
    queryKey: ["lease-extension", lease.id, asked],
    queryFn: ({ signal }) => api<LeaseUpdated>(`${leasePath(lease.id)}/extend`, { body: { ...JSON.parse(asked), dry_run: true }, signal }),
    enabled: Boolean(longer.trim()),
    retry: false,
  });
  const act = useAct<LeaseUpdated>("extend", lease, words, ({ accepted }) => (accepted ? onDone() : setUnanswered(true)));
  const submit = (event: FormEvent) => {
    event.preventDefault();
    act.mutate(body);
  };
  if (unanswered)
    return (
      <>
        <p>The proposal is on the chain, and its provider has not answered yet. It still may; the events say when it does.</p>
        <Button onClick={onDone}>Done</Button>
      </>
    );
  return (
    <form onSubmit={submit} className="space-y-4">
      <Field label="How much longer" hint="90m, 12h, 7d">
        <input className="field num" value={longer} onChange={(event) => setLonger(event.target.value)} required autoFocus />
      </Field>
      {lease.max_spend_usd && (
        <Field label="May cost at most, in $" hint={`Now ${usd(lease.max_spend_usd)}; empty leaves it.`}>
          <input className="field num" inputMode="decimal" value={maxSpend} onChange={(event) => setMaxSpend(event.target.value)} />
        </Field>
      )}
      <div aria-live="polite" data-testid="consequence">
        {plan.data && !plan.error && <PlanText of={plan.data} />}
        {!act.error && <ErrorNotice error={plan.error} />}
      </div>
      <Answer action="extend" isPending={act.isPending} error={act.error} onNo={onDone}>
        <Button look="main" type="submit" disabled={act.isPending || !plan.data || Boolean(plan.error) || asked !== words}>
          {WORDS.extend.yes}
        </Button>
      </Answer>
    </form>
  );
}

function PlanText({ of: { plan } }: { of: LeaseUpdated }) {
  return (
    <p>
      It then runs until <span className="num">{exactTime(plan.ends_at)}</span> at {usd(plan.hourly_usd)} an hour, and may cost {usd(plan.cost_usd)} from now on.{" "}
      {Number(plan.top_up_usd) > 0 ? `${usd(plan.top_up_usd)} of your credits are added to the deposit; what is not used comes back.` : "The deposit covers that already."} Its provider has to accept it.
    </p>
  );
}

function Answer({ action, isPending, error, onNo, children }: { action: LeaseAction; isPending: boolean; error: unknown; onNo: () => void; children: ReactNode }) {
  return (
    <>
      <ErrorNotice error={error} />
      <div className="flex flex-wrap items-center gap-3">
        {children}
        <Button look="quiet" onClick={onNo}>
          {ENDS.includes(action) ? "Keep it" : "Not now"}
        </Button>
        {isPending && (
          <span className="text-muted" role="status">
            Waiting for the chain …
          </span>
        )}
      </div>
    </>
  );
}
