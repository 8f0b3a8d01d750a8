from __future__ import annotations

from pathlib import Path

from sparewatt.node.leases.commit_log import DAY_S, ENTRY_BYTES, CommitLog

NOON = 20_000 * DAY_S + DAY_S / 2
KEYS = [(bytes([number]) * 32, number) for number in range(1, 4)]


def reread(folder: Path, *, unix_s: float = NOON) -> CommitLog:
    log = CommitLog(folder)
    log.load(unix_s=unix_s)
    return log


def test_a_commit_is_remembered_over_restarts(tmp_path: Path) -> None:
    log = reread(tmp_path)
    for key in KEYS[:2]:
        log.add(key, unix_s=NOON)
    again = reread(tmp_path)
    assert [key in again for key in KEYS] == [True, True, False]
    assert (KEYS[0][0], 9) not in again, "another attempt is another commit"


def test_a_commit_is_noted_once(tmp_path: Path) -> None:
    log = reread(tmp_path)
    for _ in range(3):
        log.add(KEYS[0], unix_s=NOON)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size == ENTRY_BYTES
    assert file.stat().st_mode & 0o077 == 0


def test_it_is_forgotten_by_time_alone(tmp_path: Path) -> None:
    log = reread(tmp_path)
    log.add(KEYS[0], unix_s=NOON)
    log.add(KEYS[1], unix_s=NOON + DAY_S)
    after = reread(tmp_path, unix_s=NOON + 3 * DAY_S)
    assert len(after) == 2
    after = reread(tmp_path, unix_s=NOON + 4 * DAY_S)
    assert (KEYS[0] in after, KEYS[1] in after) == (False, True)
    assert len(list(tmp_path.iterdir())) == 1


def test_an_entry_torn_by_a_crash_spoils_no_other(tmp_path: Path) -> None:
    reread(tmp_path).add(KEYS[0], unix_s=NOON)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes() + b"torn")
    reread(tmp_path).add(KEYS[1], unix_s=NOON)
    again = reread(tmp_path)
    assert (KEYS[0] in again, KEYS[1] in again) == (True, True)
    assert file.stat().st_size == 2 * ENTRY_BYTES
