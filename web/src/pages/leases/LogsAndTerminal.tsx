import { lazy, Suspense, useState, type FormEvent } from "react";
import type { LeaseDetails } from "@/api/schema";
import { Button } from "@/components/Button";
import { Field } from "@/components/Field";
import { EmptyState, Loading } from "@/components/Notice";
import { Section } from "@/components/Page";
import { SegmentedControl } from "@/components/SegmentedControl";
import { useQueryChoice } from "@/lib/urlState";
import { currentStep } from "@/market/leaseSteps";
import { LeaseLogs } from "./LeaseLogs";

const LeaseTerminal = lazy(() => import("./LeaseTerminal")); // with the terminal emulator, which is large
const VIEWS = ["Logs", "Terminal"] as const;

/** What the program writes, or a command beside it. */
export function LogsAndTerminal({ lease }: { lease: LeaseDetails }) {
  const [view, setView] = useQueryChoice<(typeof VIEWS)[number]>("view", VIEWS);
  return (
    <Section title={view} aside={<SegmentedControl label="Logs or terminal" value={view} options={VIEWS} onChange={setView} />}>
      {view === "Logs" ? <Logs lease={lease} /> : <TerminalView lease={lease} />}
    </Section>
  );
}

function Logs({ lease }: { lease: LeaseDetails }) {
  const step = currentStep(lease);
  if (step === "running" || step === "paused") return <LeaseLogs key={lease.order?.lease?.term} id={lease.id} isRunning={step === "running"} />;
  if (step === "closed")
    return (
      <EmptyState title="Its logs have gone with it">
        <p className="text-muted">They are kept on the provider's machine, as long as the container is. Save what you need before you close a lease.</p>
      </EmptyState>
    );
  return (
    <EmptyState title="No logs yet">
      <p className="text-muted">What its program writes appears here as soon as it runs.</p>
    </EmptyState>
  );
}

function TerminalView({ lease }: { lease: LeaseDetails }) {
  const [command, setCommand] = useState("/bin/sh");
  const [opened, setOpened] = useState<{ words: string[]; number: number } | null>(null);
  const isRunning = currentStep(lease) === "running";
  if (!isRunning && !opened)
    return (
      <EmptyState title="No terminal now">
        <p className="text-muted">A command runs beside your program, in its container: that needs a lease that is running.</p>
      </EmptyState>
    );
  const open = (event: FormEvent) => {
    event.preventDefault();
    setOpened({ words: command.trim().split(/\s+/), number: (opened?.number ?? 0) + 1 });
  };
  return (
    <div className="space-y-3">
      <form onSubmit={open} className="flex flex-wrap items-end gap-3">
        <div className="min-w-0 flex-1">
          <Field label="Command" hint="One that is in the image; words are separated by spaces.">
            <input className="field num" value={command} onChange={(event) => setCommand(event.target.value)} spellCheck={false} autoCapitalize="off" required />
          </Field>
        </div>
        <Button look="main" type="submit" className="mb-[22px]" disabled={!isRunning}>
          {opened ? "Open another" : "Open a terminal"}
        </Button>
      </form>
      {opened && (
        <Suspense fallback={<Loading />}>
          <LeaseTerminal key={opened.number} id={lease.id} command={opened.words} />
        </Suspense>
      )}
    </div>
  );
}
