"""The validator's vote key and its write-ahead file, which belong together: a key without its file must not sign.

The file is made before the key is stored, so a crash in between leaves a file without entries, which is made anew. A
backup has no write-ahead file; a validator that was restored from one would not know what its key signed, so it needs a
new vote key.
"""

from __future__ import annotations

from pathlib import Path

from sparewatt.core.errors import StartupError
from sparewatt.core.rng import Rng
from sparewatt.evm.model import ChainIdentity, hex_of
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.protocol.signing import SigningKey
from sparewatt.validator.signed_file import (
    SIGNED_FILE,
    FileBinding,
    SignedFile,
    read_binding,
    read_signatures,
    require_unused,
)

VOTE_KEY_FILE = "vote.key"
RETIRED = "retired"


def open_vote_key(
    data: Path, *, identity: ChainIdentity, task_manager: str, rng: Rng, renew: bool = False
) -> tuple[SigningKey, SignedFile]:
    """The key and its file, locked; made if there are none. `renew` retires the old pair first. Raises StartupError."""
    data = make_private_dir(data)
    if renew:
        retire_vote_key(data)
    key = find_vote_key(data)
    is_new = key is None
    if key is None:
        _remove_unused_file(data / SIGNED_FILE)
        key = SigningKey.generate(rng=rng)
    else:
        require_file(data)
    binding = FileBinding(identity.chain_id, hex_of(identity.genesis_hash), task_manager.lower(), key.address)
    file = SignedFile(data / SIGNED_FILE, binding=binding, is_old=not is_new)
    if is_new:
        write_private(data / VOTE_KEY_FILE, key.secret_hex().encode())
    return key, file


def require_file(data: Path) -> None:
    """Of a vote key that is there. Raises StartupError."""
    if not (data / SIGNED_FILE).exists():
        raise StartupError(
            f"{data / VOTE_KEY_FILE} has no write-ahead file ({SIGNED_FILE}) beside it. Was it restored from a backup? "
            "Without the file nobody knows what the key signed, and signing again could be a fault that is slashed. "
            "A restored validator needs a new vote key: start it with --new-vote-key."
        )


def is_usable(data: Path, *, identity: ChainIdentity, task_manager: str) -> bool:
    """Whether the vote key here, if there is one, may sign: its file is whole, and of this chain and contract."""
    path = data / SIGNED_FILE
    here = (identity.chain_id, hex_of(identity.genesis_hash), task_manager.lower())
    try:
        bound = read_binding(path)
        read_signatures(path)
    except StartupError:
        return False
    if bound is None:
        return find_vote_key(data) is None
    return (bound.chain_id, bound.genesis_hash, bound.task_manager) == here


def find_vote_key(data: Path) -> SigningKey | None:
    """Raises StartupError."""
    return read_key(data / VOTE_KEY_FILE) if (data / VOTE_KEY_FILE).exists() else None


def read_key(path: Path) -> SigningKey:
    """Raises StartupError, whose text never contains the key."""
    try:
        return SigningKey.read(path)
    except OSError as error:
        raise StartupError(f"Cannot read {path}: {error.strerror}.") from None
    except ValueError:
        raise StartupError(f"{path} holds no key: 64 hex digits are expected.") from None


def read_or_create_key(path: Path, *, rng: Rng) -> SigningKey:
    """For an operator's key on a network of test money. Raises StartupError."""
    if not path.exists():
        make_private_dir(path.parent)
        write_private(path, SigningKey.generate(rng=rng).secret_hex().encode())
    return read_key(path)


def retire_vote_key(data: Path) -> None:
    """Move the pair away; it is kept, since old keys stay slashable. Raises StartupError while a process uses it."""
    key = find_vote_key(data)
    name = key.address if key is not None else "unknown"
    if (data / SIGNED_FILE).exists():
        require_unused(data / SIGNED_FILE)
    folder = make_private_dir(data / RETIRED)
    if (data / SIGNED_FILE).exists():
        (data / SIGNED_FILE).replace(folder / f"{name}.wal")
    if key is not None:
        (data / VOTE_KEY_FILE).replace(folder / f"{name}.key")


def retired_keys(data: Path) -> frozenset[str]:
    """The addresses of vote keys that were used here before."""
    return frozenset(path.stem.lower() for path in (data / RETIRED).glob("0x*"))


def _remove_unused_file(path: Path) -> None:
    """A file whose key was never stored has no entries."""
    if read_signatures(path):
        raise StartupError(
            f"{path} holds signatures, but its key ({VOTE_KEY_FILE}) is not there. Put the key back, or start with "
            "--new-vote-key."
        )
    path.unlink(missing_ok=True)
