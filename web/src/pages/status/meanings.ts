// What an error's code means, and whose turn it is when a client sees it.

const MEANINGS: Record<string, string> = {
  body_too_large: "The request was larger than the network takes.",
  first_token_timeout: "No node wrote a first token in time.",
  id_reused: "Two requests came with one id.",
  idempotency_conflict: "The same request was still being answered.",
  idempotency_mismatch: "Another request came with an Idempotency-Key that was used.",
  insufficient_credits: "The account has too little left.",
  invalid_api_key: "No key, or one that is not known.",
  invalid_json: "The request was no JSON.",
  invalid_request: "The request could not be understood.",
  invalid_value: "A field of the request has a value that it cannot have.",
  key_budget_exceeded: "The key's budget is spent.",
  key_policy_violation: "The request asked for more than its key's policy allows.",
  low_priority_shed: "A batch job made room for others.",
  model_not_found: "No node has this model.",
  no_capacity: "No node could take it right now. Clients are told when to come back.",
  no_eligible_node: "The request's policy left nobody.",
  node_failed: "Every node that tried failed.",
  permission_denied: "The key may not do this.",
  queue_full: "Too many waited for this model. Clients are told when to come back.",
  rate_limit_exceeded: "The key or the address asked too often.",
  session_ended: "The browser was logged out meanwhile.",
  shutting_down: "The gateway was being stopped.",
  store_unavailable: "The gateway's database did not answer.",
  unknown_field: "The request has a field that nobody knows.",
  unsupported_content: "No model here takes such content.",
  unsupported_parameter: "No model server here takes this parameter.",
};

export function meaningOf(code: string): string {
  return MEANINGS[code] ?? "The answer that the client got says more.";
}
