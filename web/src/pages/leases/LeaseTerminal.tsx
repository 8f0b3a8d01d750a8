import "@xterm/xterm/css/xterm.css";
import { FitAddon } from "@xterm/addon-fit";
import { Terminal, type ITheme } from "@xterm/xterm";
import { useEffect, useRef, useState } from "react";
import { api, errorText } from "@/api/client";
import { leasePath } from "@/api/queries";
import type { ExecRequest, LeaseTicket, SocketControl, SocketNotice } from "@/api/schema";
import { cssVariable, useTheme } from "@/lib/theme";
import { withAdoptedStyles } from "./adoptedStyles";

const SCROLLBACK_LINES = 2_000;

/** A command in the lease's container, with a terminal. It ends when this is taken away. */
export default function LeaseTerminal({ id, command }: { id: string; command: string[] }) {
  const host = useRef<HTMLDivElement>(null);
  const terminal = useRef<Terminal | null>(null);
  const theme = useTheme();
  const [state, setState] = useState("connecting …");
  useEffect(() => {
    const made = new Terminal({ scrollback: SCROLLBACK_LINES, fontSize: 13, fontFamily: "ui-monospace, 'DejaVu Sans Mono', monospace", theme: colours(), screenReaderMode: true });
    terminal.current = made;
    const fit = new FitAddon();
    made.loadAddon(fit);
    if (host.current) withAdoptedStyles(() => made.open(host.current as HTMLElement));
    fit.fit();
    const observer = new ResizeObserver(() => fit.fit());
    if (host.current) observer.observe(host.current);
    const end = connect(made, id, command, setState);
    made.focus();
    return () => {
      end();
      observer.disconnect();
      made.dispose();
    };
  }, [id, command]);
  useEffect(() => {
    if (terminal.current) terminal.current.options.theme = colours();
  }, [theme]);
  return (
    <div className="card" data-testid="terminal">
      <p className="small flex justify-between gap-3 border-b border-line px-3 py-2 text-muted">
        <span className="num truncate">{command.join(" ")}</span>
        <span role="status" className="shrink-0">
          {state}
        </span>
      </p>
      <div className="h-[420px] overflow-hidden bg-ink p-2">
        <div ref={host} className="h-full" />
      </div>
    </div>
  );
}

function colours(): ITheme {
  return {
    background: cssVariable("ink"),
    foreground: cssVariable("text"),
    cursor: cssVariable("volt"),
    cursorAccent: cssVariable("ink"),
    selectionBackground: cssVariable("line"),
    red: cssVariable("offline"),
    green: cssVariable("online"),
    yellow: cssVariable("suspect"),
    blue: cssVariable("busy"),
  };
}

/** Opens the socket with a ticket of one use, which a page needs because it cannot send a key. Returns what ends it. */
function connect(terminal: Terminal, id: string, command: string[], say: (state: string) => void): () => void {
  let socket: WebSocket | null = null;
  let isOver = false;
  const tell = (control: SocketControl) => socket?.readyState === WebSocket.OPEN && socket.send(JSON.stringify(control));
  const finish = (text: string) => {
    if (isOver) return;
    isOver = true;
    say(text);
    terminal.options.disableStdin = true;
    socket?.close();
  };
  const onText = (text: string) => {
    const notice = JSON.parse(text) as SocketNotice;
    if (notice.started) say("connected");
    if (notice.error) finish(notice.error.message ?? "It broke off.");
    else if (typeof notice.exit_code === "number") finish(`ended with code ${notice.exit_code}`);
    else if (notice.ended) finish("ended");
  };
  const open = ({ ticket, lease }: LeaseTicket) => {
    if (isOver) return;
    socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}${leasePath(lease)}/exec?ticket=${encodeURIComponent(ticket)}`);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => socket?.send(JSON.stringify({ command, tty: true, columns: terminal.cols, rows: terminal.rows } satisfies ExecRequest));
    socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => (typeof data === "string" ? onText(data) : terminal.write(new Uint8Array(data, 1)));
    socket.onclose = () => finish("the connection is closed");
  };
  const encoder = new TextEncoder();
  terminal.onData((text) => socket?.readyState === WebSocket.OPEN && socket.send(encoder.encode(text)));
  terminal.onBinary((text) => socket?.readyState === WebSocket.OPEN && socket.send(Uint8Array.from(text, (char) => char.charCodeAt(0))));
  terminal.onResize(({ cols, rows }) => tell({ resize: { columns: cols, rows } }));
  api<LeaseTicket>(`${leasePath(id)}/tickets`, { method: "POST" }).then(open, (error: unknown) => finish(errorText(error)));
  return () => {
    isOver = true;
    socket?.close();
  };
}
