"""The mail server's address, and mails that wait for it."""

from __future__ import annotations

import pytest

from sparewatt.accounts.mail import MAILS_WAITING_MAX, Mailer, MailServer, read_mail_server, reset_message
from sparewatt.core.errors import StartupError


def test_a_mail_server_is_read_from_its_address() -> None:
    server = read_mail_server("smtp://ann:p%40ss@mail.example", "net@mail.example")
    assert server == MailServer("smtp", "mail.example", 587, "net@mail.example", "ann", "p@ss")
    assert "p@ss" not in repr(server)
    assert read_mail_server("smtps://mail.example:2465", "a@b") == MailServer("smtps", "mail.example", 2465, "a@b")
    assert read_mail_server(None, None) is None


@pytest.mark.parametrize(
    ("url", "sender"),
    [
        ("smtp://mail.example", None),
        (None, "a@b"),
        ("http://mail.example", "a@b"),
        ("smtp://", "a@b"),
        ("smtp://:secret@x:port", "a@b"),
    ],
)
def test_half_a_mail_server_stops_the_start_without_its_password(url: str | None, sender: str | None) -> None:
    with pytest.raises(StartupError, match="smtp_url") as caught:
        read_mail_server(url, sender)
    assert "secret" not in caught.value.message


async def test_undelivered_mails_are_bounded_and_a_dead_server_is_no_crash(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mailer = Mailer(MailServer("smtp", "127.0.0.1", 1, "net@example.org"))
    for _ in range(MAILS_WAITING_MAX + 3):
        mailer.enqueue(reset_message("ann@example.org", "reset-sw-secret", root_url="http://127.0.0.1:1"))
    await mailer.send_next()
    events = [record.message for record in caplog.records]
    assert events == ["mail_dropped"] * 3 + ["mail_failed"]
    assert "reset-sw-secret" not in caplog.text


def test_an_address_cannot_smuggle_a_header_into_a_mail() -> None:
    with pytest.raises(ValueError, match="linefeed"):
        reset_message("ann@example.org\nBcc: all@example.org", "t", root_url="http://x")
