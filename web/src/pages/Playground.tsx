import { Send, Square } from "lucide-react";
import { useMemo, useRef, useState, type FormEvent } from "react";
import { useNetwork, useNodes } from "@/api/queries";
import { Button } from "@/parts/Button";
import { CopyLine } from "@/parts/CopyLine";
import { JoinHint } from "@/parts/JoinHint";
import { Empty, ErrorNote } from "@/parts/Note";
import { Page } from "@/parts/Page";
import { Choice } from "@/parts/Tabs";
import { ask, WAITING, type Answer, type Asked } from "./playground/answer";
import { Chips } from "./playground/Chips";
import { providerOf } from "./playground/chips";
import { Column, messagesOf, type Turn } from "./playground/Column";
import { asCurl, asPython } from "./playground/snippets";

interface Side {
  model: string;
  turns: Turn[];
}

export default function Playground() {
  const network = useNetwork();
  const models = (network.data?.models ?? []).map((model) => model.id);
  if (!network.data) return <Page title="Playground">{network.error ? <ErrorNote error={network.error} /> : <p className="text-muted">Loading …</p>}</Page>;
  if (!models.length)
    return (
      <Page title="Playground">
        <Empty title="No node serves a model right now">
          <JoinHint />
        </Empty>
      </Page>
    );
  return <Desk models={models} />;
}

function Desk({ models }: { models: string[] }) {
  const first = models[0] as string;
  const [sides, setSides] = useState<Side[]>([{ model: first, turns: [] }]);
  const [on, setOn] = useState<string[]>([]);
  const [maxTokens, setMaxTokens] = useState(256);
  const [isBusy, setBusy] = useState(false);
  const stopper = useRef<AbortController | null>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const provider = providerOf(on);
  const nodes = useNodes(true);
  const names = useMemo(() => new Map((nodes.data?.data ?? []).map((node) => [node.id, node.name])), [nodes.data]);

  const change = (at: number, side: (before: Side) => Side) => setSides((all) => all.map((one, place) => (place === at ? side(one) : one)));
  const askSide = async (at: number, question: string, signal: AbortSignal) => {
    const { model, turns } = sides[at] as Side;
    const asked = { model, messages: [...messagesOf(turns), { role: "user" as const, content: question }], maxTokens, provider };
    change(at, (side) => ({ ...side, turns: [...side.turns, { question, answer: WAITING }] }));
    const show = (answer: Answer) => change(at, (side) => ({ ...side, turns: [...side.turns.slice(0, -1), { question, answer }] }));
    await ask(asked, signal, show);
  };
  const submit = async (event?: FormEvent) => {
    event?.preventDefault();
    const question = field.current?.value.trim();
    if (!question || isBusy || !field.current) return;
    field.current.value = "";
    setBusy(true);
    stopper.current = new AbortController();
    const { signal } = stopper.current;
    await Promise.all(sides.map((_, at) => askSide(at, question, signal)));
    setBusy(false);
    field.current?.focus();
  };
  const compare = () => setSides((all) => (all.length > 1 ? all.slice(0, 1) : [...all, { model: models.find((model) => model !== all[0]?.model) ?? first, turns: [] }]));

  return (
    <Page
      title="Playground"
      lead="Ask a model, see which node answered, how fast, for how much, and why it was chosen."
      actions={
        <>
          <Button onClick={compare}>{sides.length > 1 ? "One model" : "Compare two"}</Button>
          <Button onClick={() => setSides((all) => all.map((side) => ({ ...side, turns: [] })))}>Clear</Button>
        </>
      }
    >
      <Chips on={on} onChange={setOn} models={[...new Set(sides.map((side) => side.model))]} provider={provider} />
      <div className={`grid gap-4 ${sides.length > 1 ? "lg:grid-cols-2" : ""}`}>
        {sides.map((side, at) => (
          <Column key={at} {...side} models={models} names={names} onModel={(model) => change(at, () => ({ model, turns: [] }))} />
        ))}
      </div>
      <form onSubmit={submit} className="space-y-2">
        <textarea
          ref={field}
          aria-label="Question"
          placeholder="Ask something. Enter sends, Shift-Enter makes a line."
          rows={3}
          className="field"
          onKeyDown={(event) => event.key === "Enter" && !event.shiftKey && void submit(event)}
        />
        <div className="flex flex-wrap items-center justify-between gap-3">
          <label className="small flex items-center gap-2 text-muted">
            longest answer
            <input
              type="number"
              min={1}
              max={32_768}
              value={maxTokens}
              onChange={(event) => setMaxTokens(event.target.valueAsNumber || 256)}
              className="field num w-24"
            />
            tokens
          </label>
          {isBusy ? (
            <Button onClick={() => stopper.current?.abort()}>
              <Square size={14} aria-hidden /> Stop
            </Button>
          ) : (
            <Button look="main" type="submit">
              <Send size={14} aria-hidden /> Ask
            </Button>
          )}
        </div>
      </form>
      <Snippets asked={{ model: sides[0]?.model ?? first, messages: lastQuestion(sides[0]), maxTokens, provider }} />
    </Page>
  );
}

function lastQuestion(side: Side | undefined): Asked["messages"] {
  return [{ role: "user", content: side?.turns.at(-1)?.question ?? "Say hello" }];
}

function Snippets({ asked }: { asked: Asked }) {
  const [kind, setKind] = useState<"curl" | "Python">("curl");
  const text = kind === "curl" ? asCurl(asked, location.origin) : asPython(asked, location.origin);
  return (
    <details className="card p-3">
      <summary>Copy as curl or Python</summary>
      <div className="mt-3 space-y-2">
        <Choice label="Language" value={kind} options={["curl", "Python"] as const} onChange={setKind} />
        <CopyLine label={`the request as ${kind}`} text={text} />
      </div>
    </details>
  );
}
