import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "react";
import { ApiError, request } from "@/api/client";
import { leasePath } from "@/api/queries";
import type { LeaseLogPiece } from "@/api/schema";
import { Button } from "@/components/Button";
import { ErrorNotice } from "@/components/Notice";
import { SegmentedControl } from "@/components/SegmentedControl";
import { download } from "@/lib/download";
import { plural } from "@/lib/format";
import { jsonLines } from "@/lib/ndjson";
import { LINES_MAX, withPiece, type LogLine } from "./logLines";

const TAILS = ["100", "500", "2000"] as const;
type Tail = (typeof TAILS)[number];
/** Pieces are gathered for so long, so that a busy program does not redraw the page for each. */
const DRAW_EVERY_MS = 100;
const NEAR_END_PX = 40;
/** A connection that broke off is made again after so long; what the gateway or the node refused is not. */
const RECONNECT_AFTER_MS = 2_000;

interface LogState {
  lines: LogLine[];
  isOpen: boolean;
  error: unknown;
  /** Whether the connection is what failed. */
  isCutOff: boolean;
}

/** What the program wrote: the last lines, and with "Follow" what comes. Only the newest lines are kept. */
export function LeaseLogs({ id, isRunning }: { id: string; isRunning: boolean }) {
  const [tail, setTail] = useState<Tail>("500");
  const [isFollowing, setFollowing] = useState(true);
  const [tries, retry] = useReducer((number: number) => number + 1, 0);
  const { lines, isOpen, error, isCutOff } = useLog(id, { tail, isFollowing, again: `${isRunning} ${tries}` });
  useEffect(() => {
    if (!isCutOff) return;
    const timer = window.setTimeout(retry, RECONNECT_AFTER_MS);
    return () => window.clearTimeout(timer);
  }, [isCutOff, tries]);
  const save = () => download(`${id}.log`, "text/plain", lines.map(({ text }) => text).join("\n"));
  return (
    <div className="card" data-testid="logs">
      <div className="flex flex-wrap items-center justify-between gap-3 border-b border-line px-3 py-2">
        <span className="flex flex-wrap items-center gap-3">
          <label className="flex items-center gap-2">
            <input type="checkbox" checked={isFollowing} onChange={(event) => setFollowing(event.target.checked)} />
            Follow
          </label>
          <span className="flex items-center gap-2">
            <span className="small text-muted">Last lines</span>
            <SegmentedControl label="Last lines" value={tail} options={TAILS} onChange={setTail} />
          </span>
        </span>
        <span className="small text-muted" role="status">
          {stateText(isOpen, isFollowing, isRunning, Boolean(error))}
        </span>
      </div>
      {Boolean(error) && (
        <div className="flex flex-wrap items-center gap-3 p-3">
          <ErrorNotice error={error} />
          <Button onClick={retry}>Try again</Button>
        </div>
      )}
      <Lines lines={lines} isOpen={isOpen} />
      <footer className="small flex items-center justify-between gap-3 border-t border-line px-3 py-1.5 text-muted">
        <span>
          {plural(lines.length, "line")}
          {lines.length >= LINES_MAX && ", older ones are left out"}
        </span>
        <button type="button" className="hover:text-text" onClick={save} disabled={!lines.length}>
          Save
        </button>
      </footer>
    </div>
  );
}

function stateText(isOpen: boolean, isFollowing: boolean, isRunning: boolean, isBroken: boolean): string {
  if (isBroken) return "broken off";
  if (isOpen) return isFollowing ? (isRunning ? "following" : "paused: nothing new comes") : "reading …";
  return isFollowing ? "the log has ended" : "as it was when you looked";
}

function Lines({ lines, isOpen }: { lines: LogLine[]; isOpen: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  useLayoutEffect(() => {
    if (isAtEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines]);
  const onScroll = () => {
    const element = box.current;
    if (element) isAtEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END_PX;
  };
  return (
    <div ref={box} onScroll={onScroll} tabIndex={0} role="log" aria-label="What the program wrote" className="num small h-[420px] overflow-y-auto bg-ink p-3 break-words whitespace-pre-wrap">
      {lines.map(({ number, stream, text }) => (
        <div key={number} className={stream === "stderr" ? "border-l-2 border-suspect pl-2" : ""} title={stream}>
          {text || " "}
        </div>
      ))}
      {!lines.length && <p className="font-sans text-muted">{isOpen ? "Nothing yet: its program has written nothing. What comes appears here." : "It has written nothing."}</p>}
    </div>
  );
}

/** In the words of the node or the gateway. */
class LogRefused extends Error {}

interface LogOptions {
  tail: Tail;
  isFollowing: boolean;
  /** The log is opened anew when this changes. */
  again: string;
}

function useLog(id: string, { tail, isFollowing, again }: LogOptions): LogState {
  const [state, setState] = useState<LogState>({ lines: [], isOpen: true, error: null, isCutOff: false });
  useEffect(() => {
    const abort = new AbortController();
    let lines: LogLine[] = [];
    let timer: number | undefined;
    const draw = (isOpen: boolean, error: unknown = null, isCutOff = false) => {
      window.clearTimeout(timer);
      timer = undefined;
      if (!abort.signal.aborted) setState({ lines, isOpen, error, isCutOff });
    };
    const read = async () => {
      const reply = await request(`${leasePath(id)}/logs?format=json&tail=${tail}&follow=${isFollowing}`, { signal: abort.signal });
      timer ??= window.setTimeout(() => draw(true), DRAW_EVERY_MS); // not at once: the old lines stay until the new ones come
      for await (const piece of jsonLines<LeaseLogPiece>(reply)) {
        if (piece.error) throw new LogRefused(piece.error.message ?? "The log broke off.");
        lines = withPiece(lines, piece);
        timer ??= window.setTimeout(() => draw(true), DRAW_EVERY_MS);
      }
    };
    read().then(
      () => draw(false),
      (error: unknown) => {
        const isRefused = error instanceof LogRefused || (error instanceof ApiError && error.status > 0);
        draw(false, isRefused ? error : new Error("The connection broke off. It is made again by itself."), !isRefused);
      },
    );
    return () => {
      abort.abort();
      window.clearTimeout(timer);
    };
  }, [id, tail, isFollowing, again]);
  return state;
}
