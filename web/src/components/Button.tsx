import type { ButtonHTMLAttributes } from "react";

type Look = "main" | "plain" | "quiet" | "danger";

const LOOKS: Record<Look, string> = {
  main: "bg-volt text-on-volt font-semibold border border-volt",
  plain: "border border-line bg-surface hover:border-muted",
  quiet: "text-muted hover:text-text",
  danger: "border border-offline text-offline",
};

export function Button({ look = "plain", className = "", ...rest }: ButtonHTMLAttributes<HTMLButtonElement> & { look?: Look }) {
  return (
    <button
      type="button"
      className={`inline-flex min-h-9 items-center justify-center gap-2 rounded-md px-3 whitespace-nowrap disabled:opacity-50 ${LOOKS[look]} ${className}`}
      {...rest}
    />
  );
}
