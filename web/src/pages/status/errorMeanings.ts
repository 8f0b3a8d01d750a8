const MEANINGS: Record<string, string> = {
  body_too_large: "The request was larger than the network accepts.",
  disk_full: "A disk of the network was full.",
  first_token_timeout: "No node wrote a first token in time.",
  id_reused: "An id was used again for another account or amount.",
  idempotency_conflict: "A request was repeated, but its answer is not stored: it was streamed or too long.",
  idempotency_mismatch: "An Idempotency-Key was used again for another request.",
  insufficient_credits: "The account has too few credits left.",
  invalid_api_key: "The request had no key, or an unknown one.",
  invalid_json: "The request was not JSON.",
  invalid_request: "The request was not valid.",
  invalid_value: "A field of the request had a value that it cannot have.",
  key_budget_exceeded: "The key's budget is spent.",
  key_policy_violation: "The request asked for nodes that its key's policy does not allow.",
  low_priority_shed: "The queue filled up, and a low-priority request was dropped.",
  model_not_found: "No node has this model.",
  no_capacity: "Every node that could serve it was full or away. The reply says when to try again.",
  no_eligible_node: "No node matches the request's policy.",
  node_failed: "Every node that tried failed.",
  permission_denied: "The key lacks the scope for this.",
  queue_full: "Too many requests waited for this model. The reply says when to try again.",
  rate_limit_exceeded: "The key or the address sent too many requests.",
  session_ended: "The browser's session had ended.",
  shutting_down: "The gateway was stopping.",
  store_unavailable: "The gateway's database did not answer.",
  unknown_field: "The request had an unknown field.",
  unsupported_content: "The model does not take such content, for example a picture.",
  unsupported_parameter: "The model server does not support this parameter.",
};

export function errorMeaning(code: string): string {
  return MEANINGS[code] ?? "The error in the client's reply says more.";
}
