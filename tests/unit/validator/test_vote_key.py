"""A vote key and its write-ahead file belong together."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.core.rng import seeded
from sparewatt.evm.model import ChainIdentity
from sparewatt.protocol.contracts.match import Vote
from sparewatt.protocol.contracts.match_messages import SignedVote
from sparewatt.protocol.signing import SigningKey
from sparewatt.validator.signed_file import SIGNED_FILE, SignedFile, read_signatures
from sparewatt.validator.vote_key import (
    VOTE_KEY_FILE,
    find_vote_key,
    is_usable,
    open_vote_key,
    read_key,
    read_or_create_key,
    retired_keys,
)

IDENTITY = ChainIdentity(31337, b"\1" * 32)
MANAGER = "0x" + "AB" * 20
VOTE = SignedVote(Vote(b"\1" * 32, 0, 0, b"\2" * 32), b"\3" * 65)


def opened(data: Path, *, seed: int = 1, renew: bool = False) -> tuple[SigningKey, SignedFile]:
    return open_vote_key(data, identity=IDENTITY, task_manager=MANAGER, rng=seeded(seed), renew=renew)


def test_a_new_validator_gets_a_key_and_keeps_it(tmp_path: Path) -> None:
    key, file = opened(tmp_path / "v")
    file.append([VOTE], at=1)
    file.close()
    again, file = opened(tmp_path / "v", seed=2)
    assert again.address == key.address
    assert len(file) == 1
    assert file.binding.task_manager == MANAGER.lower()
    assert (tmp_path / "v" / VOTE_KEY_FILE).stat().st_mode & 0o777 == 0o600


def test_a_key_without_its_file_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    """A backup leaves the write-ahead file out, so this is a validator that was restored from one."""
    _, file = opened(tmp_path)
    file.close()
    (tmp_path / SIGNED_FILE).unlink()
    with pytest.raises(StartupError, match=r"needs a new vote key.*--new-vote-key"):
        opened(tmp_path)
    assert not (tmp_path / SIGNED_FILE).exists()


@pytest.mark.parametrize("kept", [0, 1, 100])
def test_a_key_whose_file_lost_its_first_line_is_refused(tmp_path: Path, kept: int) -> None:
    """The first line was on disk before the key was: the file had more, and has lost it."""
    _, file = opened(tmp_path)
    file.append([VOTE], at=1)
    file.close()
    data = (tmp_path / SIGNED_FILE).read_bytes()[:kept]
    (tmp_path / SIGNED_FILE).write_bytes(data)
    with pytest.raises(StartupError, match="--new-vote-key"):
        opened(tmp_path)
    assert (tmp_path / SIGNED_FILE).read_bytes() == data


def test_a_new_vote_key_retires_the_old_pair(tmp_path: Path) -> None:
    old, file = opened(tmp_path)
    file.append([VOTE], at=1)
    file.close()
    new, file = opened(tmp_path, seed=2, renew=True)
    assert new.address != old.address
    assert len(file) == 0
    assert read_key(tmp_path / "retired" / f"{old.address}.key").address == old.address
    assert len(read_signatures(tmp_path / "retired" / f"{old.address}.wal")) == 1


def test_a_key_in_use_is_not_retired(tmp_path: Path) -> None:
    old, _file = opened(tmp_path)
    with pytest.raises(StartupError, match="Another validator"):
        opened(tmp_path, seed=2, renew=True)
    found = find_vote_key(tmp_path)
    assert found is not None
    assert found.address == old.address


def usable(data: Path, *, identity: ChainIdentity = IDENTITY, task_manager: str = MANAGER) -> bool:
    return is_usable(data, identity=identity, task_manager=task_manager)


def test_a_pair_that_must_not_sign_is_known(tmp_path: Path) -> None:
    assert usable(tmp_path), "there is none yet"
    _, file = opened(tmp_path)
    file.append([VOTE, SignedVote(Vote(b"\1" * 32, 0, 1, b"\2" * 32), b"\3" * 65)], at=1)
    file.close()
    assert usable(tmp_path)
    assert not usable(tmp_path, identity=ChainIdentity(31337, b"\2" * 32))
    assert not usable(tmp_path, task_manager="0x" + "cd" * 20)
    data = bytearray((tmp_path / SIGNED_FILE).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / SIGNED_FILE).write_bytes(data)
    assert not usable(tmp_path), "damaged"
    (tmp_path / SIGNED_FILE).write_bytes(b"")
    assert not usable(tmp_path), "truncated"
    (tmp_path / SIGNED_FILE).unlink()
    assert not usable(tmp_path), "restored from a backup"


def test_retired_keys_are_remembered_by_their_address(tmp_path: Path) -> None:
    assert retired_keys(tmp_path) == set()
    first, file = opened(tmp_path)
    file.close()
    second, file = opened(tmp_path, seed=2, renew=True)
    file.close()
    (tmp_path / SIGNED_FILE).unlink()
    _, file = opened(tmp_path, seed=3, renew=True)
    file.close()
    assert retired_keys(tmp_path) == {first.address, second.address}


def test_a_crash_before_the_key_was_stored_leaves_nothing_behind(tmp_path: Path) -> None:
    _, file = opened(tmp_path)
    file.close()
    (tmp_path / VOTE_KEY_FILE).unlink()
    key, file = opened(tmp_path, seed=2)
    assert file.binding.vote_key == key.address


def test_signatures_without_their_key_are_not_thrown_away(tmp_path: Path) -> None:
    _, file = opened(tmp_path)
    file.append([VOTE], at=1)
    file.close()
    (tmp_path / VOTE_KEY_FILE).unlink()
    with pytest.raises(StartupError, match="holds signatures, but its key"):
        opened(tmp_path)
    assert len(read_signatures(tmp_path / SIGNED_FILE)) == 1


def test_a_file_that_is_no_key_is_named_without_its_content(tmp_path: Path) -> None:
    path = tmp_path / "operator.key"
    path.write_text("my secret words")
    with pytest.raises(StartupError, match="holds no key") as caught:
        read_key(path)
    assert "secret" not in str(caught.value)
    with pytest.raises(StartupError, match="Cannot read"):
        read_key(tmp_path / "none.key")


def test_an_operator_key_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "operator.key"
    made = read_or_create_key(path, rng=seeded(5))
    assert read_or_create_key(path, rng=seeded(6)).address == made.address
