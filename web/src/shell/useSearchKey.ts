import { useEffect } from "react";

/** Ctrl-K, or ⌘-K on a Mac. */
export function useSearchKey(onPressed: () => void): void {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        onPressed();
      }
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [onPressed]);
}
