import type { InputHTMLAttributes } from "react";
import { CopyableText } from "@/components/CopyableText";
import { Field } from "@/components/Field";
import { wordsOf, type OrderFields } from "./orderBody";
import { OfferFacets } from "./OfferFacets";
import { orderLine } from "./orderLine";

export interface StepProps {
  fields: OrderFields;
  set: (name: keyof OrderFields) => (value: string) => void;
}

/** Step 1: the program. */
export function WhatStep({ fields, set }: StepProps) {
  return (
    <div className="space-y-4">
      <Text label="Image" value={fields.image} onText={set("image")} placeholder="ghcr.io/me/train:1" required autoFocus />
      <Text label="Command" value={fields.command} onText={set("command")} placeholder="the image's own" />
      <Text label="Call it" value={fields.name} onText={set("name")} placeholder="by its image" />
    </div>
  );
}

/** Step 2: where, and how much of it. */
export function MachineStep({ fields, set }: StepProps) {
  return (
    <div className="space-y-4">
      <OfferFacets
        choice={fields}
        onChoose={(name, value) => set(name)(value)}
        price={<Text label="Highest price an hour, in $" value={fields.maxHourly} onText={set("maxHourly")} inputMode="decimal" placeholder="from the offers" />}
        hasTable
      />
      <div className="grid gap-4 sm:grid-cols-3">
        <Text label="GPUs" value={fields.gpus} onText={set("gpus")} type="number" min={0} />
        <Text label="Processors" value={fields.cpus} onText={set("cpus")} inputMode="decimal" placeholder="1" />
        <Text label="Memory, in GB" value={fields.memoryGb} onText={set("memoryGb")} inputMode="decimal" placeholder="2" />
        <Text label="Disk, in GB" value={fields.diskGb} onText={set("diskGb")} inputMode="decimal" placeholder="10" />
        <Text label="For how long" value={fields.duration} onText={set("duration")} placeholder="90m, 12h, 7d" />
        <Text label="Spend at most, in $" value={fields.maxSpend} onText={set("maxSpend")} inputMode="decimal" placeholder="the deposit" />
      </div>
      <Text label="Further conditions" value={fields.policy} onText={set("policy")} placeholder="vram_gb>=24 tier=verified" spellCheck={false} />
    </div>
  );
}

/** Step 3: what the container is given. */
export function InsideStep({ fields, set }: StepProps) {
  return (
    <div className="space-y-4">
      <Text label="Ports" hint="Those that you want to reach, from your machine or by a public address." value={fields.ports} onText={set("ports")} placeholder="8080, 22" inputMode="numeric" />
      <Field label="Environment" hint="One NAME=value per line. Every provider that may bid can read it: what is secret belongs below.">
        <textarea className="field num" rows={4} value={fields.env} onChange={(event) => set("env")(event.target.value)} placeholder={"EPOCHS=3\nMODE=full"} spellCheck={false} />
      </Field>
      <Field label="Internet" hint="Programs of a lease reach public addresses, or nothing at all.">
        <select className="field" value={fields.egress} onChange={(event) => set("egress")(event.target.value)}>
          <option value="">public addresses</option>
          <option value="none">none</option>
        </select>
      </Field>
      <Text label="Secrets" hint="Names only. Their values never pass through this page." value={fields.secrets} onText={set("secrets")} placeholder="HF_TOKEN" spellCheck={false} />
      {wordsOf(fields.secrets).length > 0 && <SecretsNotice />}
    </div>
  );
}

function SecretsNotice() {
  return (
    <p className="rounded-md border border-suspect p-3" data-testid="secrets-notice">
      An order with secrets is sent by the command line. It seals each value to the machines that won, after it has recomputed the match and read their keys from a chain of your own. This page
      comes from the gateway, and so would the keys: it could not keep a secret from whoever runs that.
    </p>
  );
}

/** The last step of an order with secrets: the line that sends it. */
export function SecretsLine({ fields }: { fields: OrderFields }) {
  const names = wordsOf(fields.secrets);
  return (
    <div className="space-y-2" data-testid="secrets-line">
      <p>
        Run this where the {names.length === 1 ? "value is" : "values are"} in the environment ({names.join(", ")}). It shows the price again before anything is held, and the lease appears on this page.
      </p>
      <CopyableText label="the order with its secrets" text={orderLine(fields)} />
    </div>
  );
}

interface TextProps extends InputHTMLAttributes<HTMLInputElement> {
  label: string;
  hint?: string;
  onText: (text: string) => void;
}

function Text({ label, hint, onText, ...rest }: TextProps) {
  return (
    <Field label={label} {...(hint && { hint })}>
      <input className="field num" onChange={(event) => onText(event.target.value)} {...rest} />
    </Field>
  );
}
