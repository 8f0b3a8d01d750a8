// State that lives in the address, so that a copied link shows the same page.
import { useEffect, useState } from "react";

/** One of a few options as a query parameter. The first option is the default and is left out of the address. */
export function useQueryChoice<T extends string>(name: string, options: readonly [T, ...T[]]): [T, (value: T) => void] {
  const [text, setText] = useQueryText(name);
  const choice = options.find((option) => option === text) ?? options[0];
  return [choice, (value) => setText(value === options[0] ? "" : value)];
}

export function useQueryText(name: string): [string, (value: string) => void] {
  const [text, setText] = useState(() => new URLSearchParams(location.search).get(name) ?? "");
  const change = (value: string) => {
    setText(value);
    const address = new URL(location.href);
    if (value) address.searchParams.set(name, value);
    else address.searchParams.delete(name);
    history.replaceState(history.state, "", address);
  };
  return [text, change];
}

/** Scrolls to the element of the address's fragment once `isReady`: when the browser looks for it, a table has no rows yet. */
export function useScrollToFragment(isReady: boolean): void {
  useEffect(() => {
    if (!isReady) return;
    const scroll = () => {
      const id = location.hash.slice(1);
      const element = id && (document.getElementById(id) ?? document.getElementById(decoded(id)));
      if (element) element.scrollIntoView({ block: "start" });
    };
    scroll();
    const events = ["hashchange", "pushState"]; // the router fires the second one
    for (const event of events) window.addEventListener(event, scroll);
    return () => {
      for (const event of events) window.removeEventListener(event, scroll);
    };
  }, [isReady]);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
