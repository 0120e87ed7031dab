"""Which URLs and addresses lead outside, and which only seem to."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.errors import UsageError
from backstay.handlers.outgoing import HostAddress, first_inside, is_outside, read_inside, read_place

INSIDE = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "168.63.129.16",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "100::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "fec0::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "5f00::1",
    "4000::1",
    "",
    "localhost",
    "127.1",
    "2130706433",
    "0x7f000001",
    "nonsense",
]
OUTSIDE = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "2a00:1450::1"]


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_inside_is_not_outside(address):
    assert not is_outside(address)


@pytest.mark.parametrize("address", OUTSIDE)
def test_an_address_of_the_world_is_outside(address):
    assert is_outside(address)


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_no_private_address_is_ever_outside(address):
    if address.is_private or address.is_loopback or address.is_link_local or address.is_multicast:
        assert not is_outside(str(address))
        assert not is_outside(f"::ffff:{address}")


@given(st.integers(0, 2**128 - 1).map(IPv6Address))
def test_no_special_address_is_ever_outside(address):
    if not address.is_global or address.ipv4_mapped or address.sixtofour or address.teredo:
        assert not is_outside(str(address))


def test_one_address_inside_spoils_them_all():
    assert first_inside(["8.8.8.8", "1.1.1.1"]) is None
    assert first_inside(["8.8.8.8", "10.0.0.1", "1.1.1.1"]) == "10.0.0.1"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://example.com/hook?x=1", HostAddress("https", "example.com", 443)),
        ("http://Example.COM.:8080", HostAddress("http", "example.com", 8080)),
        ("HTTPS://a-b_c.example/", HostAddress("https", "a-b_c.example", 443)),
        ("http://93.184.216.34/", HostAddress("http", "93.184.216.34", 80)),
        ("http://[2606:4700:4700::1111]:81/", HostAddress("http", "2606:4700:4700::1111", 81)),
        ("http://xn--bcher-kva.example/", HostAddress("http", "xn--bcher-kva.example", 80)),
    ],
)
def test_a_plain_url_has_one_meaning(url, place):
    assert read_place(url) == place


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "example.com",
        "//example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://x/",
        "http:///x",
        "http://",
        "http:example.com",
        "https:/example.com",
        "javascript:alert(1)",
        "http://user@example.com/",
        "http://user:pass@example.com/",
        "http://example.com@127.0.0.1/",
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://example.com:/",
        "http://example.com:x/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.0.1./",
        "http://0/",
        "http://127.0.0.1.0x1/",
        "http://1.2.3.4.5/",
        "http://0x/",
        "http://a.0x/",
        "http://127%2e0.0.1/",
        "http://exa%6dple.com/",
        "http://[::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[127.0.0.1]/",
        "http://[::1/",
        "http://::1/",
        "http://[example.com]/",
        "http://①②⑦.⓪.⓪.①/",
        "http://bücher.example/",
        "http://\uff11\uff12\uff17.0.0.1/",
        "http://127。0。0。1/",
        "http://example.com\\@127.0.0.1/",
        "http://exam ple.com/",
        "http://example.com/\r\nx",
        "http://example.com\t/",
        "http://example.com/#x",
        "http://example.com#",
        "http://example.com/a b",
        "http://.example.com/",
        "http://example..com/",
        "http://-example.com/",
        f"http://{'a' * 64}.com/",
        f"http://{'a.' * 130}com/",
        "http://example.com/" + "a" * 2_048,
    ],
)
def test_a_url_that_could_mean_something_else_is_refused(url):
    with pytest.raises(UsageError):
        read_place(url)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    for url in (text, f"http://{text}", f"http://{text}/", f"https://example.com{text}"):
        try:
            read_place(url)
        except UsageError:
            continue


def test_places_inside_are_named_with_their_port():
    assert read_inside("") == frozenset()
    assert read_inside(" Gateway.local:8080, 127.0.0.1:9000 ,[::1]:80") == {
        "gateway.local:8080",
        "127.0.0.1:9000",
        "::1:80",
    }


@pytest.mark.parametrize("text", ["gateway", "gateway:", "gateway:0", "http://gateway:80", "a:80, b", "127.1:80"])
def test_a_place_inside_without_a_port_is_refused(text):
    with pytest.raises(UsageError, match="inside_hosts"):
        read_inside(text)
