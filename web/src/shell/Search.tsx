import { useLayoutEffect, useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";
import { useKeys, useMatches, useMe, useNetwork, useNodes } from "@/api/queries";
import { found, type Found } from "./found";

/** One field that finds anything by name or id. */
export function Search({ onClose }: { onClose: () => void }) {
  const me = useMe();
  return <Field onClose={onClose} isKnown={Boolean(me.data)} />;
}

function Field({ onClose, isKnown }: { onClose: () => void; isKnown: boolean }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [, go] = useLocation();
  const [network, nodes, matches] = [useNetwork(), useNodes(isKnown), useMatches(isKnown)];
  const keys = useKeys(isKnown);
  const results = useMemo(
    () =>
      found(text, {
        models: network.data?.models ?? [],
        nodes: nodes.data?.data ?? [],
        keys: keys.data?.data ?? [],
        matches: matches.data?.data ?? [],
      }),
    [text, network.data, nodes.data, keys.data, matches.data],
  );
  useLayoutEffect(() => {
    const element = dialog.current; // closed while it is still there, so that the focus goes back
    element?.showModal();
    return () => element?.close();
  }, []);
  const open = (one: Found | undefined) => {
    if (!one) return;
    onClose();
    go(one.path);
  };
  const press = (event: React.KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setAt((now) => (now + step + results.length) % Math.max(1, results.length));
    } else if (event.key === "Enter") open(results[at]);
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
        aria-controls="found"
        aria-activedescendant={results.length ? `found-${at}` : undefined}
        aria-label="Find a node, model, key or request"
        placeholder="A name, or the start of an id"
        className="w-full border-b border-line bg-surface px-4 py-3 outline-none"
        value={text}
        onKeyDown={press}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
      />
      <ul id="found" role="listbox" aria-label="Results" className="max-h-[50vh] overflow-y-auto p-1">
        {results.map((one, place) => (
          <li
            key={one.path + one.name}
            id={`found-${place}`}
            role="option"
            aria-selected={place === at}
            onClick={() => open(one)}
            className={`flex cursor-pointer justify-between gap-3 rounded-md px-3 py-2 ${place === at ? "bg-line" : ""}`}
          >
            <span className="truncate">{one.name}</span>
            <span className="small shrink-0 text-muted">{one.kind}</span>
          </li>
        ))}
        {!results.length && <li className="px-3 py-2 text-muted">Nothing has this name or id.</li>}
      </ul>
    </dialog>
  );
}
