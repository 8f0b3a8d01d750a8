import { Link } from "wouter";
import { digits, ms, usd } from "@/lib/format";
import type { Answer, Message } from "./answer";

export interface Turn {
  question: string;
  answer: Answer;
}

export function messagesOf(turns: Turn[]): Message[] {
  return turns.flatMap(({ question, answer }): Message[] => [
    { role: "user", content: question },
    ...(answer.text ? [{ role: "assistant", content: answer.text } as const] : []),
  ]);
}

interface Props {
  model: string;
  models: string[];
  turns: Turn[];
  /** Of nodes, by address. */
  names: Map<string, string>;
  onModel: (model: string) => void;
}

/** One model's side of the conversation. Everything is shown as text, whatever it holds. */
export function Column({ model, models, turns, names, onModel }: Props) {
  return (
    <section aria-label={`Conversation with ${model}`} className="card flex min-h-72 min-w-0 flex-col">
      <div className="border-b border-line p-2">
        <select aria-label="Model" className="field" value={model} onChange={(event) => onModel(event.target.value)}>
          {models.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </div>
      <ol className="flex-1 space-y-4 p-3" aria-live="polite">
        {turns.map((turn, at) => (
          <li key={at} className="space-y-2">
            <p className="rounded-md bg-line px-3 py-2 break-words whitespace-pre-wrap" data-testid="question">
              {turn.question}
            </p>
            <Reply answer={turn.answer} names={names} />
          </li>
        ))}
        {!turns.length && <li className="text-muted">Ask something below. Nothing is stored: the conversation ends with this page.</li>}
      </ol>
    </section>
  );
}

function Reply({ answer, names }: { answer: Answer; names: Map<string, string> }) {
  return (
    <div className="space-y-1.5">
      <p className="break-words whitespace-pre-wrap" data-testid="answer" data-state={answer.state}>
        {answer.text}
        {answer.state === "waiting" && <span className="text-muted">Matching …</span>}
        {answer.state === "writing" && <span aria-hidden className="text-volt">▍</span>}
      </p>
      {answer.error && (
        <p role="alert" className="text-offline">
          {answer.error}
        </p>
      )}
      <p className="num small flex flex-wrap gap-x-3 text-muted">
        {answer.node && (
          <Link href={`/nodes/${answer.node}`} className="hover:text-text">
            {names.get(answer.node) ?? `${answer.node.slice(0, 10)}…`} {answer.region}
          </Link>
        )}
        {answer.firstTokenMs !== null && <span>first token {ms(answer.firstTokenMs)}</span>}
        {answer.tokensPerS !== null && <span>{digits(answer.tokensPerS)} tok/s</span>}
        {answer.tokens !== null && <span>{answer.tokens} tokens</span>}
        {answer.costUsd !== null && <span>{usd(answer.costUsd)}</span>}
        {answer.matchId && (
          <Link href={`/matching/${answer.matchId}`} className="link" data-testid="why-link">
            why
          </Link>
        )}
      </p>
    </div>
  );
}
