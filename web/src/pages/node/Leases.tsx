import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { api } from "@/api/client";
import { PROVIDERS_PATH, useLeaseIncome, useNetwork, useProviders } from "@/api/queries";
import type { Provider, ProviderChanged } from "@/api/schema";
import { Button } from "@/components/Button";
import { CopyableText } from "@/components/CopyableText";
import { Field } from "@/components/Field";
import { ErrorNotice, NoChain } from "@/components/Notice";
import { Stat, Stats } from "@/components/Stat";
import { Time } from "@/components/Time";
import { shortId, usd } from "@/lib/format";
import { useNow } from "@/lib/now";
import { Booked } from "../earnings/LeaseIncome";
import { LeaseCalendar } from "./LeaseCalendar";

const BOOKINGS_SHOWN = 8;

/** The owner's node as a provider of leases: registered on the chain under its own address, with a bond. */
export function Leases({ node }: { node: string }) {
  const network = useNetwork();
  if (!network.data) return <ErrorNotice error={network.error} />;
  return network.data.chain ? <OwnProvider node={node} /> : <NoChain what="Leases" />;
}

function OwnProvider({ node }: { node: string }) {
  const providers = useProviders();
  const act = useProviderAct();
  const provider = providers.data?.data.find((each) => each.node === node);
  if (!providers.data) return <ErrorNotice error={providers.error} />;
  return (
    <div className="space-y-4" data-testid="leases">
      {provider && provider.status !== "unregistered" ? (
        <ProviderPanel provider={provider} act={act} />
      ) : (
        <div className="card space-y-3 p-4">
          <p className="text-muted">Whole machines are leased by auction. To take part, the node needs an address on the chain and a bond. Allow leases at the machine first:</p>
          <CopyableText label="allow leases" text="sparewatt node leases on" />
          <Button look="main" disabled={act.isPending} onClick={() => act.mutate({ path: PROVIDERS_PATH, body: { node } })}>
            Register for leases
          </Button>
        </div>
      )}
      {provider && <Bookings node={node} />}
      {act.isPending && <p className="text-muted">Waiting for the chain …</p>}
      <ErrorNotice error={act.error} />
    </div>
  );
}

/** What of this node is booked, until when, and what it brings. */
function Bookings({ node }: { node: string }) {
  const [income, nowS] = [useLeaseIncome(true), useNow()];
  const leases = income.data?.data.filter((each) => each.node === node);
  if (!leases) return <ErrorNotice error={income.error} />;
  return (
    <div className="card space-y-4 p-4" data-testid="bookings">
      <LeaseCalendar leases={leases} nowS={nowS} />
      <ul className="space-y-1">
        {leases.slice(0, BOOKINGS_SHOWN).map((each) => (
          <li key={`${each.id} ${each.placed_at}`} className="flex flex-wrap justify-between gap-x-4">
            <span>
              <Link href={`/market/${each.id}`} className="num small hover:underline">
                {shortId(each.id)}
              </Link>{" "}
              <Booked of={each} />
            </span>
            <span className="num text-muted">
              {usd(each.earned_usd)} earned{Number(each.due_usd) > 0 && `, ${usd(each.due_usd)} due`}, {usd(each.hourly_usd)}/h
            </span>
          </li>
        ))}
      </ul>
      {leases.length === 0 && <p className="text-muted">Nothing is booked, and nothing was yet.</p>}
    </div>
  );
}

interface Act {
  path: string;
  body: object;
}

function useProviderAct() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ path, body }: Act) => api<ProviderChanged>(path, { body }),
    onSettled: () => client.invalidateQueries({ queryKey: [PROVIDERS_PATH] }),
  });
}

function ProviderPanel({ provider, act }: { provider: Provider; act: ReturnType<typeof useProviderAct> }) {
  const [amount, setAmount] = useState("10");
  // A second click repeats the id of the first, so it changes nothing. A new amount, or a success, is a new request.
  const [id, setId] = useState(() => crypto.randomUUID());
  const renew = () => setId(crypto.randomUUID());
  const send = (what: string, body: object) => act.mutate({ path: `${PROVIDERS_PATH}/${provider.id}/${what}`, body: { ...body, id: `${what}-${id}` } }, { onSuccess: renew });
  const isActive = provider.status === "active";
  return (
    <>
      <CopyableText label="provider address" text={provider.id} />
      <Stats>
        <Stat name="Status">{provider.status}</Stat>
        <Stat name="Bond">{usd(provider.bond_usd)}</Stat>
        <Stat name="Free" hint="Answers for bids, and can be taken out">
          {usd(provider.free_usd)}
        </Stat>
        <Stat name="Locked" hint="Answers for leases that it has">
          {usd(provider.locked_usd)}
        </Stat>
        <Stat name="Unbonding" hint="Still at risk; becomes credits when its time is over">
          {usd(provider.unbonding_usd)} {provider.unbonded_at !== null && <Time at={provider.unbonded_at} />}
        </Stat>
        <Stat name="Key">{provider.held ? "held for you" : "in your wallet"}</Stat>
      </Stats>
      {!provider.offers_leases && <p className="text-suspect">The node is offline, or its owner offers no leases: sparewatt node leases on</p>}
      <div className="flex flex-wrap items-end gap-3">
        <Field label="Amount, in $">
          <input
            className="field num"
            inputMode="decimal"
            value={amount}
            onChange={(event) => {
              setAmount(event.target.value);
              renew();
            }}
          />
        </Field>
        <Button look="main" disabled={act.isPending} onClick={() => send("bond", { usd: amount })}>
          Add to the bond
        </Button>
        {provider.held && (
          <>
            <Button disabled={act.isPending} onClick={() => send("unbond", { usd: amount })}>
              Take out
            </Button>
            <Button disabled={act.isPending} onClick={() => send("status", { status: isActive ? "maintenance" : "active" })}>
              {isActive ? "Pause for maintenance" : "Take leases"}
            </Button>
          </>
        )}
      </div>
    </>
  );
}
