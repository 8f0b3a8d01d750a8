// What a page shows is in its address, so that a link shows the same.
import { useEffect, useState } from "react";

/** One of a few, kept in the query string; the first one needs no mention there. */
export function useChosen<T extends string>(name: string, options: readonly [T, ...T[]]): [T, (value: T) => void] {
  const [chosen, setChosen] = useState<T>(() => options.find((option) => option === read(name)) ?? options[0]);
  const choose = (value: T) => {
    setChosen(value);
    write(name, value === options[0] ? "" : value);
  };
  return [chosen, choose];
}

/** Any text, kept there too. */
export function useAsked(name: string): [string, (value: string) => void] {
  const [asked, setAsked] = useState(() => read(name));
  const ask = (value: string) => {
    setAsked(value);
    write(name, value);
  };
  return [asked, ask];
}

function read(name: string): string {
  return new URLSearchParams(location.search).get(name) ?? "";
}

function write(name: string, value: string): void {
  const address = new URL(location.href);
  if (value) address.searchParams.set(name, value);
  else address.searchParams.delete(name);
  history.replaceState(history.state, "", address);
}

/** Goes to what the address names once it is there: a table has no rows yet when the browser looks for it. */
export function useDeepLink(isThere: boolean): void {
  useEffect(() => {
    if (!isThere) return;
    const show = () => {
      const name = location.hash.slice(1);
      const element = name && (document.getElementById(name) ?? document.getElementById(decoded(name)));
      if (element) element.scrollIntoView({ block: "start" });
    };
    show();
    const moves = ["hashchange", "pushState"]; // the second one is the router's
    for (const move of moves) window.addEventListener(move, show);
    return () => {
      for (const move of moves) window.removeEventListener(move, show);
    };
  }, [isThere]);
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}
