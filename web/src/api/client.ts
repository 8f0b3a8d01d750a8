// One way to the gateway: JSON in, JSON out, errors as the gateway says them. The CSRF token is held in memory only.

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly retryAfterS: number | null = null,
  ) {
    super(message);
  }
}

let csrf = "";
const KNOWN = "sparewatt-known";

/** That somebody logged in here is kept, so that others need not be asked for; the token itself is not. */
export function rememberCsrf(token: string | undefined): void {
  csrf = token ?? "";
  if (token) localStorage.setItem(KNOWN, "yes");
}

export function forgetLogin(): void {
  csrf = "";
  localStorage.removeItem(KNOWN);
}

export function hasLoggedIn(): boolean {
  return localStorage.getItem(KNOWN) !== null;
}

export interface Ask {
  method?: "GET" | "POST" | "PATCH" | "DELETE";
  body?: unknown;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

export async function send(path: string, ask: Ask = {}): Promise<Response> {
  const method = ask.method ?? (ask.body === undefined ? "GET" : "POST");
  const headers: Record<string, string> = { ...ask.headers };
  if (method !== "GET") headers["x-sparewatt-csrf"] = csrf;
  if (ask.body !== undefined) headers["content-type"] = "application/json";
  const init: RequestInit = { method, headers, credentials: "same-origin" };
  if (ask.body !== undefined) init.body = JSON.stringify(ask.body);
  if (ask.signal) init.signal = ask.signal;
  const reply = await reach(path, init);
  if (!reply.ok) throw await errorOf(reply);
  return reply;
}

export async function api<T>(path: string, ask: Ask = {}): Promise<T> {
  const reply = await send(path, ask);
  return (await reply.json()) as T;
}

async function reach(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(path, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The gateway does not answer. Is it running? It is tried again by itself.");
  }
}

async function errorOf(reply: Response): Promise<ApiError> {
  const wait = Number(reply.headers.get("retry-after"));
  const retryAfterS = Number.isFinite(wait) && wait > 0 ? wait : null;
  try {
    const { error } = (await reply.json()) as { error: { code?: string; message?: string } };
    return new ApiError(reply.status, error.code ?? "unknown", error.message ?? reply.statusText, retryAfterS);
  } catch {
    return new ApiError(reply.status, "unknown", `The gateway answered with status ${reply.status}.`, retryAfterS);
  }
}

export function said(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
