// What pages ask for, each once: TanStack Query shares the answers and asks again.
import { useQuery, type UseQueryResult } from "@tanstack/react-query";
import { api, ApiError, forgetLogin, hasLoggedIn, rememberCsrf } from "./client";
import type * as t from "./types";

const SLOWLY = 10_000;

export function useMe(): UseQueryResult<t.Me | null> {
  return useQuery({ queryKey: ["me"], queryFn: findMe, staleTime: 60_000 });
}

async function findMe(): Promise<t.Me | null> {
  if (!hasLoggedIn()) return null;
  try {
    const me = await api<t.Me>("/v1/me");
    rememberCsrf(me.csrf_token);
    return me;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      forgetLogin();
      return null;
    }
    throw error;
  }
}

function useGet<T>(path: string | null, everyMs: number | false = false): UseQueryResult<T> {
  return useQuery({
    queryKey: [path],
    queryFn: ({ signal }) => api<T>(path as string, { signal }),
    enabled: path !== null,
    refetchInterval: everyMs,
  });
}

export type Span = "24h" | "30d";
export const SPANS = ["24h", "30d"] as const;

export const useNetwork = () => useGet<t.Network>("/v1/network", SLOWLY);
export const useHistory = (kind: "network" | "model" | "error", span: Span) =>
  useGet<t.History>(`/v1/history?kind=${kind}&span=${span}`, SLOWLY);
export const useNodes = (isKnown: boolean, everyMs = SLOWLY) =>
  useGet<t.List<t.Node>>(isKnown ? "/v1/nodes" : null, everyMs);
export const useNode = (id: string) => useGet<t.Node>(`/v1/nodes/${encodeURIComponent(id)}`, 3_000);
export const useCalendar = (id: string) => useGet<t.List<t.Day>>(`/v1/nodes/${encodeURIComponent(id)}/history`, 60_000);
export const useReputation = (id: string) =>
  useGet<t.Reputation>(`/v1/nodes/${encodeURIComponent(id)}/reputation`, SLOWLY);
export const useWhy = (id: string | null) => useGet<t.Why>(id && `/v1/nodes/${encodeURIComponent(id)}/why`, SLOWLY);
export const useMatches = (isKnown: boolean) => useGet<t.List<t.MatchLine>>(isKnown ? "/v1/matches?limit=100" : null, 3_000);
export const useMatch = (id: string | null) =>
  useQuery({
    queryKey: ["match", id],
    queryFn: ({ signal }) => api<t.Explanation>(`/v1/matches/${encodeURIComponent(id as string)}`, { signal }),
    enabled: id !== null,
    refetchInterval: (query) => (query.state.data?.outcome === "running" ? 1_000 : false),
    retry: false,
  });
export const useKeys = (isKnown = true) => useGet<t.List<t.ApiKey>>(isKnown ? "/v1/keys" : null, SLOWLY);
export const useCredits = (isKnown: boolean) => useGet<{ data: t.Credits }>(isKnown ? "/v1/credits" : null, SLOWLY);
export const useUsage = (by: "day" | "model" | "key") => useGet<t.List<t.UsageLine>>(`/v1/usage?by=${by}`, SLOWLY);
export const useJobs = () => useGet<t.List<t.JobLine>>("/v1/usage?by=job&limit=100", 5_000);
export const useEarnings = (by: "day" | "model" | "node") =>
  useGet<t.List<t.EarningSum>>(`/v1/earnings?by=${by}`, 3_000);
export const useNodeJobs = (id: string | null) =>
  useGet<t.List<t.EarningLine>>(id && `/v1/earnings?by=job&limit=50&node=${encodeURIComponent(id)}`, 5_000);
export const useStanding = () => useGet<{ data: t.Standing }>("/v1/earnings/summary", 3_000);
export const useVersion = () => useGet<{ version: string }>("/version");
