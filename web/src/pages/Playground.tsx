import { Send, Square } from "lucide-react";
import { useMemo, useRef, useState, type FormEvent } from "react";
import { useNetwork, useNodes } from "@/api/queries";
import { Button } from "@/components/Button";
import { CopyableText } from "@/components/CopyableText";
import { JoinHint } from "@/components/JoinHint";
import { EmptyState, ErrorNotice, Loading } from "@/components/Notice";
import { Page } from "@/components/Page";
import { SegmentedControl } from "@/components/SegmentedControl";
import { ask, WAITING, type Answer, type ChatQuestion } from "./playground/chat";
import { ChipBar } from "./playground/ChipBar";
import { ConversationColumn, messagesOf, type Conversation } from "./playground/ConversationColumn";
import { providerOf } from "./playground/policyChips";
import { asCurl, asPython } from "./playground/snippets";

const MAX_TOKENS_DEFAULT = 256;

export default function Playground() {
  const network = useNetwork();
  if (!network.data) return <Page title="Playground">{network.error ? <ErrorNotice error={network.error} /> : <Loading />}</Page>;
  const models = network.data.models.map((model) => model.id);
  if (models[0] !== undefined) return <Chat models={models} defaultModel={models[0]} />;
  return (
    <Page title="Playground">
      <EmptyState title="No node serves a model right now">
        <JoinHint />
      </EmptyState>
    </Page>
  );
}

/** One conversation, or two that get the same questions for comparison. */
function Chat({ models, defaultModel }: { models: string[]; defaultModel: string }) {
  const [conversations, setConversations] = useState<Conversation[]>([{ model: defaultModel, exchanges: [] }]);
  const [chips, setChips] = useState<string[]>([]);
  const [maxTokens, setMaxTokens] = useState(MAX_TOKENS_DEFAULT);
  const [isBusy, setBusy] = useState(false);
  const abort = useRef<AbortController | null>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const provider = providerOf(chips);
  const nodes = useNodes(true);
  const nodeNames = useMemo(() => new Map((nodes.data?.data ?? []).map((node) => [node.id, node.name])), [nodes.data]);
  const isComparing = conversations.length > 1;

  const change = (at: number, changed: (before: Conversation) => Conversation) =>
    setConversations((all) => all.map((one, index) => (index === at ? changed(one) : one)));
  const askModel = async ({ model, exchanges }: Conversation, at: number, question: string, signal: AbortSignal) => {
    const messages = [...messagesOf(exchanges), { role: "user" as const, content: question }];
    const show = (answer: Answer) => change(at, (now) => ({ ...now, exchanges: [...now.exchanges.slice(0, -1), { question, answer }] }));
    change(at, (now) => ({ ...now, exchanges: [...now.exchanges, { question, answer: WAITING }] }));
    await ask({ model, messages, maxTokens, provider }, signal, show);
  };
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    const question = field.current?.value.trim();
    if (!question || isBusy || !field.current) return;
    field.current.value = "";
    setBusy(true);
    const { signal } = (abort.current = new AbortController());
    await Promise.all(conversations.map((one, at) => askModel(one, at, question, signal)));
    setBusy(false);
    field.current?.focus();
  };
  const toggleComparison = () =>
    setConversations(([first, second]) => {
      if (!first || second) return first ? [first] : [];
      return [first, { model: models.find((model) => model !== first.model) ?? defaultModel, exchanges: [] }];
    });
  const clear = () => setConversations((all) => all.map(({ model }) => ({ model, exchanges: [] })));

  return (
    <Page
      title="Playground"
      lead="Ask a model, and see which node answered, how fast, for how much, and why it was chosen."
      actions={
        <>
          <Button onClick={toggleComparison}>{isComparing ? "One model" : "Compare two"}</Button>
          <Button onClick={clear}>Clear</Button>
        </>
      }
    >
      <ChipBar selected={chips} onChange={setChips} models={[...new Set(conversations.map(({ model }) => model))]} provider={provider} />
      <div className={`grid gap-4 ${isComparing ? "lg:grid-cols-2" : ""}`}>
        {conversations.map((conversation, at) => (
          <ConversationColumn
            key={at}
            conversation={conversation}
            models={models}
            nodeNames={nodeNames}
            onModel={(model) => change(at, () => ({ model, exchanges: [] }))}
          />
        ))}
      </div>
      <form onSubmit={submit} className="space-y-2">
        <textarea
          ref={field}
          aria-label="Question"
          placeholder="Ask something. Enter sends, Shift-Enter starts a new line."
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
              onChange={(event) => setMaxTokens(event.target.valueAsNumber || MAX_TOKENS_DEFAULT)}
              className="field num w-24"
            />
            tokens
          </label>
          {isBusy ? (
            <Button onClick={() => abort.current?.abort()}>
              <Square size={14} aria-hidden /> Stop
            </Button>
          ) : (
            <Button look="main" type="submit">
              <Send size={14} aria-hidden /> Ask
            </Button>
          )}
        </div>
      </form>
      <Snippets question={{ model: conversations[0]?.model ?? defaultModel, messages: lastQuestion(conversations[0]), maxTokens, provider }} />
    </Page>
  );
}

function lastQuestion(conversation: Conversation | undefined): ChatQuestion["messages"] {
  return [{ role: "user", content: conversation?.exchanges.at(-1)?.question ?? "Say hello" }];
}

function Snippets({ question }: { question: ChatQuestion }) {
  const [language, setLanguage] = useState<"curl" | "Python">("curl");
  const text = (language === "curl" ? asCurl : asPython)(question, location.origin);
  return (
    <details className="card p-3">
      <summary>Copy as curl or Python</summary>
      <div className="mt-3 space-y-2">
        <SegmentedControl label="Language" value={language} options={["curl", "Python"] as const} onChange={setLanguage} />
        <CopyableText label={`the request as ${language}`} text={text} />
      </div>
    </details>
  );
}
