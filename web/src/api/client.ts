// The only way from the page to the gateway's API: JSON in, JSON out. A request that fails throws an ApiError with the
// gateway's own text. The CSRF token is in memory only; the local storage only says that this browser has logged in.
import type { Error as ErrorReply } from "./schema";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

let csrf = "";
const LOGGED_IN = "sparewatt-known";

export function rememberLogin(token: string | undefined): void {
  csrf = token ?? "";
  if (token) localStorage.setItem(LOGGED_IN, "yes");
}

export function forgetLogin(): void {
  csrf = "";
  localStorage.removeItem(LOGGED_IN);
}

/** Spares the gateway a request that it would refuse, for visitors who never logged in. */
export function hasLoggedIn(): boolean {
  return localStorage.getItem(LOGGED_IN) !== null;
}

export interface RequestOptions {
  method?: "GET" | "POST" | "PATCH" | "DELETE";
  body?: unknown;
  signal?: AbortSignal;
}

export async function request(path: string, options: RequestOptions = {}): Promise<Response> {
  const { body, signal = null, method = body === undefined ? "GET" : "POST" } = options;
  const headers: Record<string, string> = {};
  if (method !== "GET") headers["x-sparewatt-csrf"] = csrf;
  if (body !== undefined) headers["content-type"] = "application/json";
  const json = body === undefined ? null : JSON.stringify(body);
  const reply = await fetchOrThrow(path, { method, headers, signal, body: json, credentials: "same-origin" });
  if (!reply.ok) throw await errorOf(reply);
  return reply;
}

export async function api<Reply>(path: string, options: RequestOptions = {}): Promise<Reply> {
  const reply = await request(path, options);
  return (await reply.json()) as Reply;
}

async function fetchOrThrow(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(path, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "The gateway does not answer. Check that it is running; this page tries again by itself.");
  }
}

async function errorOf(reply: Response): Promise<ApiError> {
  try {
    const { error } = (await reply.json()) as ErrorReply;
    return new ApiError(reply.status, error.message);
  } catch {
    return new ApiError(reply.status, `The gateway answered with status ${reply.status}.`);
  }
}

export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
