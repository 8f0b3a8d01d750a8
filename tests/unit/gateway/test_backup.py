"""The file that a backup is: whole, private, and never a way out of its directory."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import msgspec
import pytest

from sparewatt.core.errors import StartupError
from sparewatt.gateway.backup import (
    FORMAT,
    Manifest,
    Member,
    _copy_files,
    _is_same,
    _journals,
    _take_journals,
    member_of,
    new_file,
    read_archive,
    refuse_taken,
    write_archive,
)
from sparewatt.store.snapshot import SnapshotSchema, SnapshotTable

SHAPE = SnapshotSchema(migrations={1: "a"}, tables=[SnapshotTable("jobs", ["id"], 2)], partitions=[], sequences={})


def staged(folder: Path, **content: bytes) -> Manifest:
    names = {"tables/jobs": b"1\n2\n", "files/secret": b"s3cret\n"} | {
        k.replace("__", "/"): v for k, v in content.items()
    }
    for name, data in names.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return Manifest(FORMAT, "0.1.0", 1.0, SHAPE, [member_of(name, folder / name) for name in sorted(names)])


def packed(folder: Path, manifest: Manifest, *, gz: bool = False) -> bytes:
    target = io.BytesIO()
    write_archive(target, manifest, folder, packed=gz)
    return target.getvalue()


@pytest.mark.parametrize("gz", [False, True])
def test_what_goes_in_comes_out(tmp_path: Path, gz: bool) -> None:  # noqa: FBT001
    manifest = staged(tmp_path / "in")
    read = read_archive(io.BytesIO(packed(tmp_path / "in", manifest, gz=gz)), tmp_path / "out")
    assert read == manifest
    assert (tmp_path / "out/files/secret").read_bytes() == b"s3cret\n"
    assert (tmp_path / "out/files/secret").stat().st_mode & 0o777 == 0o600
    assert read.files() == ["secret"]


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    whole = packed(tmp_path / "in", staged(tmp_path / "in"))
    content_ends = len(whole.rstrip(b"\0"))
    for length in range(0, content_ends, 97):
        with pytest.raises(StartupError):
            read_archive(io.BytesIO(whole[:length]), tmp_path / f"out{length}")


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    whole = packed(tmp_path / "in", staged(tmp_path / "in"))
    with pytest.raises(StartupError, match="damaged"):
        read_archive(io.BytesIO(whole.replace(b"s3cret", b"s4cret")), tmp_path / "out")


@pytest.mark.parametrize("name", ["files/../../evil", "/etc/evil", "evil", "files/a/../../../evil"])
def test_a_path_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    member = Member(name, 1, "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881")
    text = msgspec.json.encode(Manifest(FORMAT, "0.1.0", 1.0, SHAPE, [member]))
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for entry, data in (("manifest.json", text), (name, b"x")):
            info = tarfile.TarInfo(entry)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    with pytest.raises(StartupError, match=r"outside|does not list"):
        read_archive(io.BytesIO(target.getvalue()), tmp_path / "out")
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize("data", [b"", b"hello", bytes(10240)])
def test_a_file_that_is_no_backup_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(StartupError, match=r"no whole backup|no backup"):
        read_archive(io.BytesIO(data), tmp_path / "out")


def test_another_format_is_refused(tmp_path: Path) -> None:
    manifest = msgspec.structs.replace(staged(tmp_path / "in"), format=FORMAT + 1)
    with pytest.raises(StartupError, match="format"):
        read_archive(io.BytesIO(packed(tmp_path / "in", manifest)), tmp_path / "out")


def test_a_backup_is_never_written_over_anything(tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    with new_file(path) as file:
        file.write(b"one")
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StartupError, match="there already"), new_file(path):
        pass
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "c.tar"):
        raise ZeroDivisionError
    assert [each.name for each in tmp_path.iterdir()] == ["b.tar"]


def test_nothing_is_restored_over_a_file(tmp_path: Path) -> None:
    manifest = staged(tmp_path / "in")
    refuse_taken(manifest, tmp_path / "new")
    (tmp_path / "secret").write_text("mine")
    with pytest.raises(StartupError, match="there already"):
        refuse_taken(manifest, tmp_path)


# what a directory gives


def test_keys_and_records_are_copied_and_runtime_files_are_not(tmp_path: Path) -> None:
    data, staging = tmp_path / "data", tmp_path / "staging"
    kept = ["secret", "gateway.key", "chain/contracts.json", "nodes/node-1/node.key", "validators/1/vote.key"]
    kept.append("validators/1/snapshots/7-00.json")
    passing = [
        "lock",
        "ready.json",
        "gateway.port",
        "logs/a.log",
        "postgres/data/x",
        "journals/gw/lock",
        ".x.tmp",
        "y.log",
        "validators/1/signed.wal",
        "validators/1/records/0x01-0.json",
    ]
    for name in kept + passing:
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text(name)
    (data / "link").symlink_to("/etc/passwd")
    _copy_files(data, staging, None, None)
    found = sorted(path.relative_to(staging / "files").as_posix() for path in staging.rglob("*") if path.is_file())
    assert found == sorted(kept)


def test_a_secret_from_the_environment_is_stored_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    _copy_files(tmp_path / "data", tmp_path / "staging", None, "ab" * 32)
    assert (tmp_path / "staging/files/secret").read_text() == "ab" * 32 + "\n"


def test_a_journal_that_was_rewritten_since_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "data" / "journals" / "gw_1" / "jobs.journal"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"one\n")
    assert _journals(tmp_path / "data") == [path]
    with path.open("rb") as file:
        with path.open("ab") as more:
            more.write(b"two\n")
        assert _is_same(path, file)
        assert _take_journals({path: file}, tmp_path / "data", tmp_path / "staging")
        copied = tmp_path / "staging" / "files" / "journals" / "gw_1" / "jobs.journal"
        assert copied.read_bytes() == b"one\ntwo\n"
        fresh = path.with_suffix(".fresh")
        fresh.write_bytes(b"three\n")
        fresh.replace(path)
        assert not _take_journals({path: file}, tmp_path / "data", tmp_path / "staging")
        path.unlink()
        assert not _is_same(path, file)
