import type { KeyboardEvent } from "react";

const STEPS: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

interface Props<T> {
  label: string;
  value: T;
  options: readonly T[];
  onChange: (value: T) => void;
}

/** A radio group drawn as one bar: one stop for the Tab key, the arrow keys choose. */
export function SegmentedControl<T extends string>({ label, value, options, onChange }: Props<T>) {
  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const next = (options.indexOf(value) + step + options.length) % options.length;
    onChange(options[next] as T);
    (event.currentTarget.children[next] as HTMLElement).focus();
  };
  return (
    <div role="radiogroup" aria-label={label} onKeyDown={onKeyDown} className="inline-flex overflow-hidden rounded-md border border-line">
      {options.map((option) => (
        <button
          key={option}
          type="button"
          role="radio"
          aria-checked={option === value}
          tabIndex={option === value ? 0 : -1}
          onClick={() => onChange(option)}
          className={`small min-h-8 border-l border-line px-3 first:border-l-0 ${option === value ? "bg-line text-text" : "text-muted hover:text-text"}`}
        >
          {option}
        </button>
      ))}
    </div>
  );
}
