"""The error tree: every failure that a client, a node or an operator can see.

SparewattError                      code                     status  retry
├── BadRequest                      invalid_request            400    no
│   ├── InvalidJson                 invalid_json               400    no
│   ├── InvalidField                invalid_value              400    no
│   ├── InvalidAmount               invalid_amount             400    no
│   ├── UnknownField                unknown_field              400    no     (a typo must not drop a filter)
│   ├── PreviousResponseNotFound    previous_response_not_found 400   no     (not stored, expired or deleted)
│   ├── SocketLifeOver              websocket_connection_limit_reached 400 no (open a new one)
│   ├── UnsupportedParameter        unsupported_parameter      400    no
│   ├── MediaNotFetched             media_not_fetched          400    no     (from an allowed host)
│   ├── RemoteUrlRefused            remote_url_refused         400    no     (a picture by its address, not as data)
│   └── UnsupportedContent          unsupported_content        400    no     (an image, for a model without vision)
├── NotAuthenticated                invalid_api_key            401    no
│   ├── LoginFailed                 login_failed               401    no
│   └── SessionEnded                session_ended              401    no
├── InsufficientCredits             insufficient_credits       402    no
├── NotAllowed                      permission_denied          403    no
│   ├── OperatorsOnly               operators_only             403    no     (the role is missing, not a scope)
│   ├── NotOwner                    not_owner                  403    no
│   ├── KeyBudgetExceeded           key_budget_exceeded        403    no
│   ├── CsrfRefused                 csrf_refused               403    no     (a page of another site, or no token)
│   ├── SignupRefused               signup_refused             403    no
│   ├── StorageFull                 storage_full               403    no     (of a key, for a day)
│   ├── RetentionForbidden          retention_forbidden        403    no     (a policy lets nothing be kept so long)
│   └── KeyPolicyViolation          key_policy_violation       403    no     (a request may narrow, never widen)
├── NotFound                        not_found                  404    no
│   ├── ModelNotFound               model_not_found            404    no
│   ├── MatchNotFound               match_not_found            404    no
│   ├── KeyNotFound                 key_not_found              404    no
│   ├── ResponseNotFound            response_not_found         404    no
│   ├── CompletionNotFound          completion_not_found       404    no     (no stored chat completion)
│   ├── ConversationNotFound        conversation_not_found     404    no
│   ├── ItemNotFound                item_not_found             404    no     (of a response that is not kept)
│   ├── AccountNotFound             account_not_found          404    no
│   ├── ProviderNotFound            provider_not_found         404    no
│   └── LeaseNotFound               lease_not_found            404    no
├── MethodNotAllowed                method_not_allowed         405    no
├── RequestTooSlow                  request_too_slow           408    yes
├── BodyTooSlow                     body_too_slow              408    yes
├── EmailTaken                      email_taken                409    no
├── IdReused                        id_reused                  409    no     (the same id, for something else)
├── IdempotencyConflict             idempotency_conflict       409    no     (answered before, the answer is not stored)
├── LeasesOff                       leases_off                 409    no     (the node's owner offers none)
├── LeaseNotRunning                 lease_not_running          409    no     (no container: not started, paused, over)
├── RetrialRefused                  retrial_refused            409    no     (had one, too late, or nobody to ask)
├── BodyTooLarge                    body_too_large             413    no
├── ExpectationFailed               expectation_failed         417    no
├── HeadTooLarge                    head_too_large             431    no
├── UnsupportedMediaType            unsupported_media_type     415    no
├── UnprocessableContent            unprocessable              422    no
│   └── MaxSpendReached             max_spend_reached          422    no     (more than the renter lets a lease cost)
├── IdempotencyMismatch             idempotency_mismatch       422    no     (the same key for another request)
├── RateLimited                     rate_limit_exceeded        429    yes
├── QueueFull                       queue_full                 429    yes    (the line, or the key's share of it)
├── JobShed                         low_priority_shed          429    yes    (low priority, as the line fills up)
├── InternalError                   internal_error             500    yes
├── UnbalancedEntry                 unbalanced_entry           500    no     (a bug: nothing is posted)
├── JobFailed                       node_failed                502    yes
├── LeasePortClosed                 lease_port_closed          502    yes    (nothing listens at a lease's port)
├── NoMatch
│   ├── NoEligibleNode              no_eligible_node           503    no     (a policy rules every node out)
│   └── NoCapacity                  no_capacity                503    yes    (the eligible nodes are full or offline)
├── StoreUnavailable                store_unavailable          503    yes
│   └── DiskFull                    disk_full                  503    yes    (of a gateway, or of its database)
├── NodeUnreachable                 node_unreachable           503    yes    (a node that has to sign something)
├── ShuttingDown                    shutting_down              503    yes
├── FirstTokenTimeout               first_token_timeout        504    yes
├── ChainError                      (between this gateway and the chain)
│   ├── NoChain                     no_chain                   409    no     (the network runs without one)
│   ├── ChainReverted               chain_reverted             422    no     (a contract reverted; `reason` says why)
│   ├── ChainRateLimited            chain_rate_limited         429    yes    (the gateway's proxy to the chain)
│   ├── ChainRefused                chain_refused              502    no     (the RPC node refused the call)
│   ├── ChainUnavailable            chain_unavailable          503    yes
│   ├── ContractsMissing            contracts_missing          503    no     (nothing is deployed, or other code is)
│   ├── ContractsOutdated           contracts_outdated         503    no     (a ContractsMissing: of another release)
│   └── WrongChain                  wrong_chain                503    no     (not the chain that the database follows)
├── LinkError                       (between node and gateway; no client sees it)
│   ├── ProtocolViolation           protocol_violation
│   ├── LinkFlooded                 protocol_violation      (a ProtocolViolation)
│   ├── JoinRefused                 link_error               (its `reason` says why)
│   └── LinkLost                    link_lost
└── StartupError                    (a process cannot start; the message says what to do)

A leaf has a stable `code`, an HTTP status, and whether trying again can help. Messages are for people: they say what
happened and what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

_KINDS = {401: "authentication_error", 402: "insufficient_quota", 403: "permission_error", 429: "rate_limit_error"}


class SparewattError(Exception):
    """Base of the tree. `param` names the request field at fault, where there is one."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    kind: ClassVar[str] = "server_error"
    """The `type` of OpenAI's error object. It follows from the status where a class does not set it."""
    retryable: ClassVar[bool] = False

    def __init_subclass__(
        cls, *, code: str | None = None, status: int | None = None, retryable: bool | None = None
    ) -> None:
        """A class names only what differs from its base."""
        cls.code = code or cls.code
        cls.status = status or cls.status
        cls.retryable = cls.retryable if retryable is None else retryable
        if "kind" not in cls.__dict__:
            cls.kind = _KINDS.get(cls.status, "invalid_request_error" if cls.status < 500 else "server_error")

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


class BadRequest(SparewattError, code="invalid_request", status=400): ...


class InvalidJson(BadRequest, code="invalid_json"): ...


class InvalidField(BadRequest, code="invalid_value"): ...


class InvalidAmount(BadRequest, code="invalid_amount"):
    def __init__(self, text: str, *, why: str = "is not an amount in dollars") -> None:
        super().__init__(f"{text[:40]!r} {why}. Write a number from 0 with at most nine decimals, e.g. 0.02.")


class PreviousResponseNotFound(BadRequest, code="previous_response_not_found"): ...


class SocketLifeOver(BadRequest, code="websocket_connection_limit_reached"): ...


class UnsupportedParameter(BadRequest, code="unsupported_parameter"): ...


class MediaNotFetched(BadRequest, code="media_not_fetched"): ...


class RemoteUrlRefused(BadRequest, code="remote_url_refused"): ...


class UnsupportedContent(BadRequest, code="unsupported_content"): ...


class UnknownField(BadRequest, code="unknown_field"):
    def __init__(self, name: str, *, nearest: str | None, param: str) -> None:
        hint = f" Did you mean {nearest!r}?" if nearest else ""
        super().__init__(f"There is no field {name[:60]!r}.{hint}", param=param[:80])


class NotAuthenticated(SparewattError, code="invalid_api_key", status=401): ...


class LoginFailed(NotAuthenticated, code="login_failed"): ...


class SessionEnded(NotAuthenticated, code="session_ended"): ...


class InsufficientCredits(SparewattError, code="insufficient_credits", status=402):
    """402 and not 429: client libraries retry a 429, which cannot help here."""


class NotAllowed(SparewattError, code="permission_denied", status=403): ...


class OperatorsOnly(NotAllowed, code="operators_only"): ...


class NotOwner(NotAllowed, code="not_owner"): ...


class KeyBudgetExceeded(NotAllowed, code="key_budget_exceeded"): ...


class CsrfRefused(NotAllowed, code="csrf_refused"): ...


class SignupRefused(NotAllowed, code="signup_refused"): ...


class StorageFull(NotAllowed, code="storage_full"): ...


class RetentionForbidden(NotAllowed, code="retention_forbidden"): ...


class KeyPolicyViolation(NotAllowed, code="key_policy_violation"):
    def __init__(self, field: str, *, level: str, allowed: str, requested: str) -> None:
        super().__init__(
            f"The {level} policy says {allowed!r}; the request asks for {requested!r}. "
            f"A request may narrow it, never widen it: leave '{field}' out or stay within.",
            param=field,
        )


class NotFound(SparewattError, code="not_found", status=404): ...


class ModelNotFound(NotFound, code="model_not_found"):
    def __init__(self, model: str, *, nearest: Sequence[str], why: str = "") -> None:
        """`why`: what is wrong with the name, where that is known."""
        if not why:
            why = f"Did you mean {', '.join(nearest)}?" if nearest else "No node serves any model right now."
        super().__init__(f"The model {model[:100]!r} is not served by this network. {why}", param="model")
        self.nearest = tuple(nearest)


class MatchNotFound(NotFound, code="match_not_found"): ...


class KeyNotFound(NotFound, code="key_not_found"): ...


class ResponseNotFound(NotFound, code="response_not_found"): ...


class CompletionNotFound(NotFound, code="completion_not_found"): ...


class ConversationNotFound(NotFound, code="conversation_not_found"): ...


class ItemNotFound(NotFound, code="item_not_found"): ...


class AccountNotFound(NotFound, code="account_not_found"): ...


class ProviderNotFound(NotFound, code="provider_not_found"): ...


class LeaseNotFound(NotFound, code="lease_not_found"): ...


class MethodNotAllowed(SparewattError, code="method_not_allowed", status=405): ...


class RequestTooSlow(SparewattError, code="request_too_slow", status=408, retryable=True): ...


class BodyTooSlow(RequestTooSlow, code="body_too_slow"): ...


class EmailTaken(SparewattError, code="email_taken", status=409): ...


class IdReused(SparewattError, code="id_reused", status=409): ...


class IdempotencyConflict(SparewattError, code="idempotency_conflict", status=409): ...


class LeasesOff(SparewattError, code="leases_off", status=409): ...


class RetrialRefused(SparewattError, code="retrial_refused", status=409): ...


class LeaseNotRunning(SparewattError, code="lease_not_running", status=409): ...


class IdempotencyMismatch(SparewattError, code="idempotency_mismatch", status=422): ...


class BodyTooLarge(SparewattError, code="body_too_large", status=413): ...


class ExpectationFailed(SparewattError, code="expectation_failed", status=417): ...


class HeadTooLarge(SparewattError, code="head_too_large", status=431): ...


class UnsupportedMediaType(SparewattError, code="unsupported_media_type", status=415): ...


class UnprocessableContent(SparewattError, code="unprocessable", status=422): ...


class MaxSpendReached(UnprocessableContent, code="max_spend_reached", status=422): ...


class RateLimited(SparewattError, code="rate_limit_exceeded", status=429, retryable=True): ...


class QueueFull(SparewattError, code="queue_full", status=429, retryable=True): ...


class JobShed(SparewattError, code="low_priority_shed", status=429, retryable=True): ...


class InternalError(SparewattError, retryable=True): ...


class UnbalancedEntry(SparewattError, code="unbalanced_entry"): ...


class JobFailed(SparewattError, code="node_failed", status=502, retryable=True): ...


class LeasePortClosed(SparewattError, code="lease_port_closed", status=502, retryable=True): ...


class NoMatch(SparewattError, status=503): ...


class NoEligibleNode(NoMatch, code="no_eligible_node"): ...


class NoCapacity(NoMatch, code="no_capacity", retryable=True): ...


class StoreUnavailable(SparewattError, code="store_unavailable", status=503, retryable=True): ...


class DiskFull(StoreUnavailable, code="disk_full"): ...


class NodeUnreachable(SparewattError, code="node_unreachable", status=503, retryable=True): ...


class ShuttingDown(SparewattError, code="shutting_down", status=503, retryable=True): ...


class FirstTokenTimeout(SparewattError, code="first_token_timeout", status=504, retryable=True): ...


class ChainError(SparewattError, code="chain_error"): ...


class NoChain(ChainError, code="no_chain", status=409):
    """The network runs without a chain, so there is no `what` on it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} needs a chain, and this network has none. Its operator can give it one: 'sparewatt up' without "
            "--no-chain, or a gateway with --chain-url."
        )


class ChainReverted(ChainError, code="chain_reverted", status=422):
    """A contract reverted the transaction. `reason` is the name of its error, `data` the bytes that it returned."""

    def __init__(self, reason: str, *, data: bytes = b"") -> None:
        super().__init__(f"The contract refused this: {reason}.")
        self.reason = reason
        self.data = data


class ChainRateLimited(ChainError, code="chain_rate_limited", status=429, retryable=True): ...


class ChainRefused(ChainError, code="chain_refused", status=502): ...


class ChainUnavailable(ChainError, code="chain_unavailable", status=503, retryable=True): ...


class ContractsMissing(ChainError, code="contracts_missing", status=503): ...


class ContractsOutdated(ContractsMissing, code="contracts_outdated", status=503):
    """The contracts on the chain are of another release than this program."""


class WrongChain(ChainError, code="wrong_chain", status=503): ...


class LinkError(SparewattError, code="link_error"): ...


class ProtocolViolation(LinkError, code="protocol_violation"): ...


class LinkFlooded(ProtocolViolation):
    """It sent more reports than the link takes."""


class JoinRefused(LinkError):
    """The gateway rejected this node. `reason` tells the agent whether to dial again."""

    def __init__(self, message: str, *, reason: str, final: bool = True) -> None:
        """`final`: dialling again with the same key and token cannot help."""
        super().__init__(message)
        self.reason = reason
        self.final = final


class LinkLost(LinkError, code="link_lost", retryable=True): ...


class StartupError(SparewattError, code="startup_error"): ...
