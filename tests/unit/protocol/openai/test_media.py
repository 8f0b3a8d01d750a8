"""What a chat holds besides text: pictures as data pass, addresses are found however they are written."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sparewatt.core.errors import BadRequest, InvalidField, RemoteUrlRefused, UnsupportedContent, UnsupportedParameter
from sparewatt.protocol.openai.media import (
    FETCHED_PER_REQUEST_MAX,
    NO_MEDIA,
    URL_CHARS_MAX,
    MessageMedia,
    check_processor_options,
    host_of_url,
    media_in,
    refused_host,
    with_pictures,
)

PIXEL = "data:image/png;base64,iVBORw0KGgo="
FAR = "https://images.example.org/a.png"


def message(*parts: Any, name: str = "content") -> bytes:
    return json.dumps({"role": "user", name: list(parts)}).encode()


def picture(url: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize(
    "raw",
    [
        b'{"role":"user","content":"see http://10.0.0.1/a.png"}',
        b'{"role":"assistant","content":null,"reasoning_content":"image_url"}',
        b'{"role":"user"}',
        message({"type": "text", "text": "see http://10.0.0.1/a.png"}, "and file:///etc/passwd"),
        message({"type": "refusal", "refusal": "no"}, {"text": "without a type"}),
    ],
)
def test_text_is_no_media_whatever_it_says(raw: bytes) -> None:
    assert media_in([raw]) == NO_MEDIA


def test_pictures_as_data_have_no_address() -> None:
    assert media_in([message(picture(PIXEL)), message(picture("DATA:image/gif;base64,R0"))]) == MessageMedia(True)


def test_addresses_are_found_once_each_with_their_hosts() -> None:
    found = media_in([message(picture(FAR), picture(PIXEL)), message(picture(FAR), picture("http://b.example.org/"))])
    assert found == MessageMedia(True, (FAR, "http://b.example.org/"))
    assert found.hosts() == {"images.example.org", "b.example.org"}


@pytest.mark.parametrize(
    "raw",
    [
        message({"image_url": {"url": FAR}}),
        message({"type": "image_url", "image_url": FAR}),
        message({"type": "text", "text": "a", "image_url": {"url": FAR}}),
        message("a", picture(FAR)),
        message({"type": "image_url", "Image_URL": {"URL": FAR}}, name="Content"),
        rb'{"role":"user","content":[{"type":"image\u005furl","image\u005furl":{"\u0075rl":"https://images.example.org/a.png"}}]}',
        message({"type": "image_url", "image_url": {"url": PIXEL, "URL": FAR}}),
    ],
    ids=["no type", "bare", "beside text", "beside a string", "another case", "escapes", "two of one name"],
)
def test_no_way_of_writing_hides_an_address(raw: bytes) -> None:
    assert FAR in media_in([raw]).remote_urls


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "/etc/passwd",
        "a.png",
        "//images.example.org/a.png",
        "",
        "ftp://images.example.org/a.png",
        "gopher://images.example.org/",
        "http://",
        "http://localhost/",
        "http://printer/",
        "http://127.0.0.1/",
        "http://192.168.1.1/a.png",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://127.1/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://user@images.example.org/",
        "http://images.example.org\\@10.0.0.1/",
        "http://images.example.org:0x50/",
        "http://images.example.org:99999999/",
        "http://bücher.example/",
        "http://images.example.org/\n",
        " http://images.example.org/",
        "http://images.example.org/" + "a" * URL_CHARS_MAX,
        "http://-.example.org/",
    ],
)
def test_what_nobody_fetches_is_refused_with_the_way_out(url: str) -> None:
    with pytest.raises(RemoteUrlRefused, match="data: URL") as refused:
        media_in([message(picture(url))])
    assert (refused.value.code, refused.value.status, refused.value.param) == ("remote_url_refused", 400, "messages")
    assert "example.org" not in refused.value.message


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Images.Example.org/a.png?b#c", "images.example.org"),
        ("HTTP://images.example.org:80/", "images.example.org"),
        ("https://images.example.org:443/", "images.example.org"),
        ("http://images.example.org:443/", "images.example.org:443"),
        ("https://xn--bcher-kva.example:8443/", "xn--bcher-kva.example:8443"),
    ],
)
def test_a_host_is_named_with_its_port_if_that_is_not_the_usual_one(url: str, host: str) -> None:
    assert host_of_url(url) == host


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "http://10.0.0.1/", "format": "wav"}},
        {"type": "audio_url", "audio_url": {"url": FAR}},
        {"type": "video_url", "video_url": {"url": FAR}},
        {"type": "file", "file": {"file_data": FAR}},
        {"type": "text", "text": "a", "video_url": {"url": FAR}},
        {"type": "image_embeds", "image_embeds": "AAAA"},
        {"type": "IMAGE_URL", "image_url": {"url": FAR}},
        {"type": "something new", "source": FAR},
        {"type": ["image_url"], "image_url": {"url": PIXEL}},
    ],
)
def test_a_part_that_no_node_takes_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedContent, match="Send text and image_url parts only"):
        media_in([message(part)])


@pytest.mark.parametrize(
    "raw",
    [
        b'"hi"',
        b"[]",
        b'{"content":5}',
        b'{"content":{"type":"image_url"}}',
        message(5),
        message([picture(FAR)]),
        message(picture(5)),
        message(picture(None)),
        message({"type": "image_url"}),
        message({"type": "image_url", "image_url": {}}),
        message({"type": "image_url", "image_url": [FAR]}),
        b'{"content":' + b"[" * 100_000,
    ],
)
def test_what_cannot_be_read_is_refused_and_not_passed_on(raw: bytes) -> None:
    with pytest.raises(InvalidField):
        media_in([raw])


def test_a_request_names_a_few_addresses_at_most() -> None:
    many = [picture(f"https://images.example.org/{number}") for number in range(FETCHED_PER_REQUEST_MAX + 1)]
    assert len(media_in([message(*many[:-1])]).remote_urls) == FETCHED_PER_REQUEST_MAX
    with pytest.raises(RemoteUrlRefused):
        media_in([message(*many)])


def test_addresses_are_replaced_and_nothing_else() -> None:
    plain = b'{"role":"user",  "content":"as it came"}'
    mixed = message("a", {"type": "text", "text": FAR}, picture(FAR), {"image_url": FAR}, picture(PIXEL))
    untouched, changed = with_pictures([plain, mixed], {FAR: PIXEL})
    assert bytes(untouched) == plain
    assert json.loads(bytes(changed))["content"] == [
        "a",
        {"type": "text", "text": FAR},
        picture(PIXEL),
        {"image_url": PIXEL},
        picture(PIXEL),
    ]
    assert media_in([bytes(changed)]).remote_urls == ()


def test_the_refusal_of_a_host_says_what_to_send() -> None:
    error = refused_host("m")
    assert isinstance(error, BadRequest)
    assert "'m'" in error.message
    assert "data: URL" in error.message


@pytest.mark.parametrize("options", [None, b"null", b"{}", b'{"max_pixels":1000,"fps":0.5,"do_resize":false}'])
def test_numbers_and_switches_of_a_picture_pass(options: bytes | None) -> None:
    check_processor_options(None if options is None else msgspec.Raw(options))


@pytest.mark.parametrize("options", [b'{"videos":"http://10.0.0.1/"}', b'{"images":["a"]}', b'{"a":{"b":1}}', b"[]"])
def test_options_of_a_picture_hold_no_address(options: bytes) -> None:
    with pytest.raises(UnsupportedParameter) as refused:
        check_processor_options(msgspec.Raw(options))
    assert refused.value.param == "mm_processor_kwargs"
