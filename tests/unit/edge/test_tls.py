"""A certificate that changes while the gateway runs."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from aiohttp import ClientConnectionError, ClientSession, web

from sparewatt.core.errors import StartupError
from sparewatt.edge.server import listen, serving
from sparewatt.edge.tls import Certificate
from tests.certificates import Pair, make_certificate
from tests.unit.edge.served import plain_refusals


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    folder = tmp_path_factory.mktemp("certificates")
    return make_certificate(folder, "IP:127.0.0.1", stem="one"), make_certificate(folder, "IP:127.0.0.1", stem="two")


def put(pair: Pair, folder: Path) -> Pair:
    placed = Pair(folder / "live.crt", folder / "live.key")
    shutil.copy(pair.cert, placed.cert)
    shutil.copy(pair.key, placed.key)
    return placed


async def test_a_new_certificate_is_used_for_new_connections(pairs: tuple[Pair, Pair], tmp_path: Path) -> None:
    live = put(pairs[0], tmp_path)
    certificate = Certificate(live.cert, live.key)
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    async with serving(web.Application(), listener, refusals=plain_refusals(), tls=certificate.context):
        before = await presented(port)
        assert before == der(pairs[0])
        assert not certificate.reload_if_changed()
        put(pairs[1], tmp_path)
        assert certificate.reload_if_changed()
        assert await presented(port) == der(pairs[1])


async def presented(port: int) -> bytes:
    """The certificate that the server shows to who comes now."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return shown


def der(pair: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.cert.read_text())


async def test_a_client_that_knows_it_gets_an_answer_and_plain_http_none(
    pairs: tuple[Pair, Pair], tmp_path: Path
) -> None:
    live = put(pairs[0], tmp_path)
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    async with (
        serving(web.Application(), listener, refusals=plain_refusals(), tls=Certificate(live.cert, live.key).context),
        ClientSession() as session,
    ):
        trusting = ssl.create_default_context(cafile=str(live.cert))
        async with session.get(f"https://127.0.0.1:{port}/", ssl=trusting) as reply:
            assert reply.status == 404
        with pytest.raises(ClientConnectionError):
            await session.get(f"http://127.0.0.1:{port}/")


def test_one_that_cannot_be_used_is_not_taken(pairs: tuple[Pair, Pair], tmp_path: Path) -> None:
    live = put(pairs[0], tmp_path)
    certificate = Certificate(live.cert, live.key)
    shutil.copy(pairs[1].cert, live.cert)  # half of a renewal: the key is still the old one
    assert not certificate.reload()
    shutil.copy(pairs[1].key, live.key)
    assert certificate.reload()


def test_an_unusable_certificate_is_reported_at_the_start(pairs: tuple[Pair, Pair], tmp_path: Path) -> None:
    live = put(pairs[0], tmp_path)
    with pytest.raises(StartupError, match="No such file"):
        Certificate(tmp_path / "none.crt", live.key)
    live.cert.write_text("hello")
    with pytest.raises(StartupError, match="cannot be used"):
        Certificate(live.cert, live.key)


def test_a_key_with_a_passphrase_is_refused_instead_of_asking_for_it(pairs: tuple[Pair, Pair], tmp_path: Path) -> None:
    live = put(pairs[0], tmp_path)
    argv = ["openssl", "ec", "-in", str(pairs[0].key), "-aes256", "-passout", "pass:secret", "-out", str(live.key)]
    subprocess.run(argv, check=True, capture_output=True)
    with pytest.raises(StartupError, match="passphrase"):
        Certificate(live.cert, live.key)
