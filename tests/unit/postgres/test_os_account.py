"""Under which account PostgreSQL is started."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.postgres.binaries import PostgresBinaries
from sparewatt.postgres.os_account import NOBODY, OsAccount, choose_os_account, os_accounts_for_root


async def test_a_normal_user_needs_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    account = await choose_os_account(PostgresBinaries(tmp_path), home=tmp_path)
    assert account == OsAccount(1000)
    assert account.wrap(("postgres",), death_signal=signal.SIGINT) == ("postgres",)


async def test_if_root_cannot_change_its_account_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(StartupError, match="set DATABASE_URL or run as a normal user"):
        await choose_os_account(PostgresBinaries(tmp_path), home=tmp_path)


async def test_an_account_that_does_not_work_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda program: "/bin/false")
    with pytest.raises(StartupError, match="refuses to run as root"):
        await choose_os_account(PostgresBinaries(tmp_path), home=tmp_path)


def test_root_tries_a_user_namespace_first_where_files_need_not_change_hands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: f"/bin/{program}")
    namespace, nobody = os_accounts_for_root()
    assert namespace == OsAccount(0, ("/bin/unshare", "--user", "--map-user=65534", "--map-group=65534"))
    assert (nobody.owner_uid, nobody.prefix[0]) == (NOBODY, "/bin/setpriv")


def test_a_change_of_uid_sets_the_death_signal_again() -> None:
    account = OsAccount(NOBODY, ("setpriv",), resets_death_signal=True)
    wrapped = account.wrap(("postgres", "-D", "x"), death_signal=signal.SIGINT)
    assert wrapped == ("setpriv", "--pdeathsig", "INT", "postgres", "-D", "x")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_taking_over_a_tree_reaches_every_file_and_follows_no_link(tmp_path: Path) -> None:
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    (tree / "a" / "b").mkdir(parents=True)
    outside.write_text("x")
    (tree / "a" / "link").symlink_to(outside)
    OsAccount(NOBODY).chown_tree(tree)
    assert {path.lstat().st_uid for path in (tree, *tree.rglob("*"))} == {NOBODY}
    assert outside.stat().st_uid == 0
