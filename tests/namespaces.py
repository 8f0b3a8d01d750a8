"""A home behind a router, as network namespaces: it can only dial out, its packets are rewritten, its line is narrow.

    this machine (10.213.n.1)  ──  router (NAT, lets nothing in, MTU 1400)  ──  home (192.168.77.2)

Needs root and `ip` and `nft`. `pull` takes the cable out of the router and `plug` puts it back.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

UPLINK_MTU = 1400
_RULES = """
table ip home {
  chain out { type nat hook postrouting priority 100; oifname "up0" masquerade; }
  chain pass { type filter hook forward priority 0; policy drop;
    iifname "lan0" accept
    ct state established,related accept
  }
  chain self { type filter hook input priority 0; policy drop;
    iifname "lan0" accept
    ct state established,related accept
  }
}
"""


def why_not() -> str | None:
    """What this machine lacks; None when a home can be made here."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    missing = [program for program in ("ip", "nft") if shutil.which(program) is None]
    if missing:
        return f"{' and '.join(missing)} not found (Debian: iproute2, nftables)"
    try:
        with home_behind_nat():
            return None
    except (AssertionError, OSError, subprocess.CalledProcessError) as error:
        return f"a home cannot be made here: {error}"


@dataclass(frozen=True, slots=True)
class Home:
    name: str
    router: str
    gateway_ip: str
    """This machine's address, as seen from the home."""
    router_ip: str
    """All that this machine sees of the home."""

    def argv(self, *words: str) -> list[str]:
        """The same command inside the home; its pid is the command's own."""
        return ["ip", "netns", "exec", self.name, *words]

    def pull(self) -> None:
        _run("ip", "-n", self.router, "link", "set", "lan0", "down")

    def plug(self) -> None:
        _run("ip", "-n", self.router, "link", "set", "lan0", "up")

    @contextmanager
    def unplugged(self, seconds: float) -> Iterator[None]:
        """The cable is out for at least as long; what happens inside happens meanwhile."""
        until_s = time.monotonic() + seconds
        self.pull()
        try:
            yield
            time.sleep(max(0.0, until_s - time.monotonic()))
        finally:
            self.plug()


@contextmanager
def home_behind_nat() -> Iterator[Home]:
    """Made, and gone with everything that still runs in it: its addresses at least."""
    number = os.getpid() % 60_000
    prefix, first = f"10.213.{number % 250}", number // 250 % 60 * 4 + 1
    home = Home(f"sw-home-{number}", f"sw-router-{number}", f"{prefix}.{first}", f"{prefix}.{first + 1}")
    ours = f"swup{number}"
    _tidy(home, ours)
    try:
        for name in (home.name, home.router):
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "link", "add", ours, *_peer("up0", home.router))
        _run("ip", "-n", home.router, "link", "add", "lan0", *_peer("eth0", home.name))
        _run("ip", "link", "set", ours, "mtu", str(UPLINK_MTU))
        _address(None, ours, f"{home.gateway_ip}/30")
        _address(home.router, "up0", f"{home.router_ip}/30")
        _run("ip", "-n", home.router, "link", "set", "up0", "mtu", str(UPLINK_MTU))
        _address(home.router, "lan0", "192.168.77.1/24")
        _address(home.name, "eth0", "192.168.77.2/24")
        _run("ip", "-n", home.name, "route", "add", "default", "via", "192.168.77.1")
        _run("ip", "netns", "exec", home.router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        subprocess.run(["ip", "netns", "exec", home.router, "nft", "-f", "-"], input=_RULES, text=True, check=True)
        yield home
    finally:
        _tidy(home, ours)


def _peer(name: str, namespace: str) -> tuple[str, ...]:
    return ("type", "veth", "peer", "name", name, "netns", namespace)


def _address(namespace: str | None, link: str, address: str) -> None:
    inside: Sequence[str] = ("-n", namespace) if namespace else ()
    _run("ip", *inside, "address", "add", address, "dev", link)
    _run("ip", *inside, "link", "set", link, "up")


def _tidy(home: Home, ours: str) -> None:
    subprocess.run(["ip", "link", "del", ours], check=False, capture_output=True)
    for name in (home.name, home.router):
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr.strip()}"
