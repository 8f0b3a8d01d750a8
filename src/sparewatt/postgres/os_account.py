"""The OS account that PostgreSQL runs as. It refuses uid 0, so root starts it as `nobody`; no user is created.

Preferred is a user namespace that maps root to nobody: no file changes its owner. Where namespaces are forbidden
(Docker's default profile) the server runs as the real nobody, who becomes the owner of the data.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sparewatt.core.errors import StartupError
from sparewatt.machine.spawn import exits_within
from sparewatt.postgres.binaries import PostgresBinaries

NOBODY = 65534
PROBE_S = 10.0


@dataclass(frozen=True, slots=True)
class OsAccount:
    """How to start a program under another account, and which uid must own its files."""

    owner_uid: int
    prefix: tuple[str, ...] = ()
    resets_death_signal: bool = False

    def wrap(self, argv: tuple[str, ...], *, death_signal: signal.Signals) -> tuple[str, ...]:
        """Prefix `argv` with the change of account. The kernel clears a death signal when the uid changes."""
        if not self.resets_death_signal:
            return (*self.prefix, *argv)
        return (*self.prefix, "--pdeathsig", death_signal.name.removeprefix("SIG"), *argv)

    def chown_tree(self, tree: Path) -> None:
        """Make the account the owner of `tree`; does nothing if it owns it already."""
        if tree.lstat().st_uid == self.owner_uid:
            return
        for path in sorted(tree.rglob("*"), reverse=True):
            os.chown(path, self.owner_uid, -1, follow_symlinks=False)
        os.chown(tree, self.owner_uid, -1)  # last, so that an interrupted run is repeated


async def choose_os_account(binaries: PostgresBinaries, *, home: Path) -> OsAccount:
    """The first account that works here. StartupError when root cannot change its account."""
    if os.geteuid() != 0:
        return OsAccount(os.geteuid())
    for account in os_accounts_for_root():
        if await _works(account, binaries, home=home):
            return account
    raise StartupError(
        "PostgreSQL refuses to run as root, and this system lets root start it neither in a user namespace nor as "
        "`nobody`. To continue, set DATABASE_URL or run as a normal user."
    )


def os_accounts_for_root() -> Iterator[OsAccount]:
    """What root may try, best first. With both, the server passes private parent directories as root does."""
    if (unshare := shutil.which("unshare")) is not None:
        yield OsAccount(0, (unshare, "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}"))
    if (setpriv := shutil.which("setpriv")) is not None:
        nobody = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        keep_access = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
        yield OsAccount(NOBODY, (setpriv, *nobody, *keep_access), resets_death_signal=True)


async def _works(account: OsAccount, binaries: PostgresBinaries, *, home: Path) -> bool:
    """Whether it can reach the data directory, and PostgreSQL accepts it and finds its own files."""
    probes = (("test", "-e", f"{home}/."), (binaries.initdb, "--show", "-D", str(home / "data")))
    return all([await _succeeds(account.wrap(argv, death_signal=signal.SIGKILL)) for argv in probes])


async def _succeeds(argv: tuple[str, ...]) -> bool:
    process = await asyncio.create_subprocess_exec(*argv, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    if not await exits_within(process, PROBE_S):
        process.kill()
    return process.returncode == 0
