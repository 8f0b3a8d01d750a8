import { useMemo, useState, type KeyboardEvent } from "react";
import { useLocation } from "wouter";
import { useKeys, useLeases, useMarketOrders, useMatches, useMe, useNetwork, useNodes } from "@/api/queries";
import { useModal } from "@/lib/useModal";
import { pagesFor } from "./pages";
import { searchResults, type SearchResult } from "./searchResults";

/** The search dialog: one field that finds anything by name or id. */
export function Search({ onClose }: { onClose: () => void }) {
  const dialog = useModal();
  const [text, setText] = useState("");
  const [selected, setSelected] = useState(0);
  const [, navigate] = useLocation();
  const me = useMe().data;
  const isLoggedIn = Boolean(me);
  const [network, nodes, keys, matches] = [useNetwork(), useNodes(isLoggedIn), useKeys(isLoggedIn), useMatches(isLoggedIn)];
  const hasMarket = isLoggedIn && Boolean(network.data?.chain);
  const [orders, leases] = [useMarketOrders("all", hasMarket), useLeases(hasMarket)];
  const results = useMemo(
    () =>
      searchResults(text, {
        pages: pagesFor(me?.role),
        models: network.data?.models ?? [],
        nodes: nodes.data?.data ?? [],
        keys: keys.data?.data ?? [],
        matches: matches.data?.data ?? [],
        orders: orders.data?.data ?? [],
        leases: leases.data?.data ?? [],
      }),
    [text, me?.role, network.data, nodes.data, keys.data, matches.data, orders.data, leases.data],
  );
  const open = (result: SearchResult | undefined) => {
    if (!result) return;
    onClose();
    navigate(result.path);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setSelected((now) => (now + step + results.length) % Math.max(1, results.length));
    } else if (event.key === "Enter") {
      event.preventDefault(); // the focus goes back to a link or button, which would take the key for a click
      open(results[selected]);
    }
  };
  return (
    <dialog
      ref={dialog}
      aria-label="Search"
      onCancel={onClose}
      onClick={(event) => event.target === dialog.current && onClose()}
      className="card mx-auto mt-[12vh] w-[min(640px,calc(100vw-32px))] text-text backdrop:bg-[#0009]"
    >
      <input
        autoFocus
        role="combobox"
        aria-expanded
        aria-controls="results"
        aria-activedescendant={results.length ? `result-${selected}` : undefined}
        aria-label="Find a node, model, key, request, order or lease"
        placeholder="A name, or the start of an id"
        className="w-full border-b border-line bg-surface px-4 py-3 outline-none"
        value={text}
        onKeyDown={onKeyDown}
        onChange={(event) => {
          setText(event.target.value);
          setSelected(0);
        }}
      />
      <ul id="results" role="listbox" aria-label="Results" className="max-h-[50vh] overflow-y-auto p-1">
        {results.map((result, at) => (
          <li
            key={result.path + result.name}
            id={`result-${at}`}
            role="option"
            aria-selected={at === selected}
            onClick={() => open(result)}
            className={`flex cursor-pointer justify-between gap-3 rounded-md px-3 py-2 ${at === selected ? "bg-line" : ""}`}
          >
            <span className="truncate">{result.name}</span>
            <span className="small shrink-0 text-muted">{result.kind}</span>
          </li>
        ))}
        {!results.length && <li className="px-3 py-2 text-muted">Nothing has this name or id.</li>}
      </ul>
    </dialog>
  );
}
