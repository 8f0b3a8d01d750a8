"""How often a password may be tried: guessing is slow, and nobody can lock an owner out of his own login.

Wrong passwords are counted by login and client network (in IPv6 a /64): ten lock that network out for that login, and
nobody else. Guesses from many networks are counted together per login, with a wider bound. A client that has proved
before that the login is its own is not part of that count: by a *device token*, a cookie that every login sets and that
is good for nothing else, or by its network. So an attacker with a thousand addresses slows strangers down, and not the
owner; who has neither gets a device token with a password reset. Counted in memory, so a restart resets it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial

from sparewatt.accounts.public_rate_limits import client_network, format_wait
from sparewatt.accounts.rate_limits import METERS_MAX, TokenBuckets
from sparewatt.core.clock import Clock
from sparewatt.core.errors import RateLimited
from sparewatt.core.limits import RETRY_AFTER_S_MAX
from sparewatt.core.rng import Rng

_MIN_S = 60.0
WRONG_PASSWORDS_MAX = 10
"""By one network or one device for one login; then one more a minute."""
WRONG_PASSWORDS_OVER_ALL_MAX = 100
"""For one login, by all networks that are strangers to it; then one more a minute, 1,440 a day."""
TRIES_PER_MIN = 30
"""Of one network, for all logins together, right or wrong: each costs a hash."""
_NONCE_BYTES = 16


class DeviceTokens:
    """Proofs that a client was logged in to a login before. They open nothing: they tell it from strangers."""

    def __init__(self, secret: bytes, *, rng: Rng) -> None:
        self._secret = secret
        self._rng = rng

    def issue(self, login: str) -> str:
        nonce = self._rng.randbytes(_NONCE_BYTES).hex()
        return f"{nonce}.{self._mac(nonce, login)}"

    def nonce_of(self, token: str | None, *, login: str) -> str | None:
        """What a valid token is counted by; None for one of another login, or a made-up one."""
        nonce, _, mac = (token or "").partition(".")
        is_ours = hmac.compare_digest(mac.encode(errors="replace"), self._mac(nonce, login).encode())
        return nonce if is_ours else None

    def _mac(self, nonce: str, login: str) -> str:
        message = f"{nonce}.{login}".encode(errors="replace")
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class PasswordTry:
    """One password that is about to be checked. It counts as wrong unless `succeed` is called."""

    limiter: LoginLimiter
    login: str
    network: str
    taken: tuple[tuple[TokenBuckets, Hashable], ...]

    def succeed(self) -> None:
        for buckets, name in self.taken:
            buckets.give_back(name)
        self.limiter.remember(self.login, self.network)


class LoginLimiter:
    def __init__(self, devices: DeviceTokens, *, clock: Clock, share: int = 1) -> None:
        """`share`: of how many processes this is one."""
        self.devices = devices
        self._clock = clock
        buckets = partial(TokenBuckets, share=share)
        self._by_network = buckets(burst=TRIES_PER_MIN, per_s=TRIES_PER_MIN / _MIN_S)
        self._by_client = buckets(burst=WRONG_PASSWORDS_MAX, per_s=1 / _MIN_S)
        """Of a login, by device or by network."""
        self._by_login = buckets(burst=WRONG_PASSWORDS_OVER_ALL_MAX, per_s=1 / _MIN_S)
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Logins, with the networks from which they were logged in to."""

    def admit(self, login: str, *, address: str, device: str | None = None) -> PasswordTry:
        """Before a password is checked. `device`: the client's device token, if any. Raises RateLimited."""
        now_s, network = self._clock.now_s(), client_network(address)
        nonce = self.devices.nonce_of(device, login=login)
        client: Hashable = (login, network) if nonce is None else (login, "device", nonce)
        is_known = nonce is not None or (login, network) in self._known
        _refuse_after(self._by_network.take(network, now_s=now_s), _TOO_MANY_HERE)
        _refuse_after(self._by_client.take(client, now_s=now_s), _TOO_MANY_HERE)
        if is_known:
            return PasswordTry(self, login, network, ((self._by_client, client),))
        wait_s = self._by_login.take(login, now_s=now_s)
        if wait_s:
            self._by_client.give_back(client)  # this password is not checked
        _refuse_after(wait_s, _TOO_MANY_EVERYWHERE)
        return PasswordTry(self, login, network, ((self._by_client, client), (self._by_login, login)))

    def remember(self, login: str, network: str) -> None:
        """Somebody there knew the password."""
        self._known[login, network] = None
        self._known.move_to_end((login, network))
        if len(self._known) > METERS_MAX:
            self._known.popitem(last=False)


_TOO_MANY_HERE = "Too many passwords were tried from here. Try again in {wait}, or reset the password."
_TOO_MANY_EVERYWHERE = (
    "Too many wrong passwords were tried for this login, from many addresses. Log in with a browser or from an address "
    "that was logged in before, reset the password, or try again in {wait}."
)


def _refuse_after(wait_s: float, text: str) -> None:
    if wait_s:
        raise RateLimited(text.format(wait=format_wait(wait_s)), retry_after_s=min(wait_s, RETRY_AFTER_S_MAX))
