import { Link } from "wouter";
import { digits, ms, shortId, usd } from "@/lib/format";
import type { Answer, ChatQuestion } from "./chat";

export interface Exchange {
  question: string;
  answer: Answer;
}

export interface Conversation {
  model: string;
  exchanges: Exchange[];
}

export function messagesOf(exchanges: Exchange[]): ChatQuestion["messages"] {
  return exchanges.flatMap(({ question, answer }): ChatQuestion["messages"] => [
    { role: "user", content: question },
    ...(answer.text ? [{ role: "assistant" as const, content: answer.text }] : []),
  ]);
}

interface Props {
  conversation: Conversation;
  models: string[];
  /** By address. */
  nodeNames: Map<string, string>;
  onModel: (model: string) => void;
}

/** The conversation with one model. Answers are shown as plain text: HTML in them is not rendered. */
export function ConversationColumn({ conversation: { model, exchanges }, models, nodeNames, onModel }: Props) {
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
        {exchanges.map(({ question, answer }, at) => (
          <li key={at} className="space-y-2">
            <p className="rounded-md bg-line px-3 py-2 break-words whitespace-pre-wrap" data-testid="question">
              {question}
            </p>
            <AnswerView answer={answer} nodeNames={nodeNames} />
          </li>
        ))}
        {!exchanges.length && <li className="text-muted">Ask something below. The conversation is not stored: it ends when you leave this page.</li>}
      </ol>
    </section>
  );
}

function AnswerView({ answer, nodeNames }: { answer: Answer; nodeNames: Map<string, string> }) {
  return (
    <div className="space-y-1.5">
      <p className="break-words whitespace-pre-wrap" data-testid="answer" data-state={answer.state}>
        {answer.text}
        {answer.state === "waiting" && <span className="text-muted">Matching …</span>}
        {answer.state === "writing" && (
          <span aria-hidden className="text-volt">
            ▍
          </span>
        )}
      </p>
      {answer.error && (
        <p role="alert" className="text-offline">
          {answer.error}
        </p>
      )}
      <p className="num small flex flex-wrap gap-x-3 text-muted">
        {answer.node && (
          <Link href={`/nodes/${answer.node}`} className="hover:text-text">
            {nodeNames.get(answer.node) ?? shortId(answer.node)} {answer.region}
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
