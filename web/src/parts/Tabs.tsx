/** A few choices of which one holds. */
export function Choice<T extends string>({ label, value, options, onChange }: { label: string; value: T; options: readonly T[]; onChange: (value: T) => void }) {
  return (
    <div role="radiogroup" aria-label={label} className="inline-flex overflow-hidden rounded-md border border-line">
      {options.map((option) => (
        <button
          key={option}
          type="button"
          role="radio"
          aria-checked={option === value}
          onClick={() => onChange(option)}
          className={`small min-h-8 border-l border-line px-3 first:border-l-0 ${option === value ? "bg-line text-text" : "text-muted hover:text-text"}`}
        >
          {option}
        </button>
      ))}
    </div>
  );
}
