import { Check, Copy } from "lucide-react";
import { useState } from "react";

/** A command with a button that copies it. */
export function CopyLine({ text, label, testId }: { text: string; label: string; testId?: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    window.setTimeout(() => setDone(false), 1_500);
  };
  return (
    <div className="flex items-stretch overflow-hidden rounded-md border border-line bg-ink">
      <code
        tabIndex={0}
        role="region"
        aria-label={label}
        data-testid={testId}
        className="num small min-w-0 flex-1 overflow-x-auto px-3 py-2 whitespace-pre"
      >
        {text}
      </code>
      <button type="button" onClick={copy} aria-label={`Copy: ${label}`} className="border-l border-line px-3 text-muted hover:text-text">
        {done ? <Check size={16} className="text-online" /> : <Copy size={16} />}
      </button>
      <span className="sr-only" role="status">
        {done ? "Copied" : ""}
      </span>
    </div>
  );
}
