import { useMemo } from "react";
import { Link } from "wouter";
import { useMarketProviders, useNodes } from "@/api/queries";
import { shortId } from "@/lib/format";

interface KnownNode {
  id: string;
  name: string;
}

/** The nodes behind providers' addresses, as far as this gateway knows them. */
export function useProviderNodes(): (provider: string) => KnownNode | undefined {
  const [providers, nodes] = [useMarketProviders(), useNodes(true)];
  return useMemo(() => {
    const byKey = new Map((nodes.data?.data ?? []).map((node) => [node.id, node]));
    const found = new Map((providers.data?.data ?? []).map(({ id, node_key }) => [id, byKey.get(node_key ?? "")]));
    return (provider) => found.get(provider);
  }, [providers.data, nodes.data]);
}

export function useProviderName(): (provider: string) => string {
  const nodeOf = useProviderNodes();
  return (provider) => nodeOf(provider)?.name ?? shortId(provider);
}

/** A provider by the name of its node, which it links to; by its address if the node is not known here. */
export function ProviderName({ of: provider }: { of: string }) {
  const node = useProviderNodes()(provider);
  if (!node)
    return (
      <span className="num small" title={provider}>
        {shortId(provider)}
      </span>
    );
  return (
    <Link href={`/nodes/${node.id}`} className="hover:underline" title={`Provider ${provider}`}>
      {node.name}
    </Link>
  );
}

/** A validator by its operator, as on the page of validators, also where only its vote key is known. */
export function ValidatorName({ voteKey, operator }: { voteKey: string; operator: string | undefined }) {
  return (
    <Link href="/validators" className="num small hover:underline" title={`Validator ${operator || "unknown"}, votes by ${voteKey}`}>
      {shortId(operator || voteKey)}
    </Link>
  );
}
