import { Check, Copy } from "lucide-react";
import { useState } from "react";

/** A command or a key with a button that copies it. */
export function CopyableText({ text, label, testId }: { text: string; label: string; testId?: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    window.setTimeout(() => setCopied(false), 1_500);
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
        {isCopied ? <Check size={16} className="text-online" /> : <Copy size={16} />}
      </button>
      <span className="sr-only" role="status">
        {isCopied ? "Copied" : ""}
      </span>
    </div>
  );
}
