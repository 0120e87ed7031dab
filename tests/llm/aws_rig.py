"""Signatures of AWS, checked as its services do it: from what arrived, and the secret."""

import hashlib
import hmac
import os
import re
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

ACCESS_KEY, SECRET = "AKIAPRACTICE00000000", "practice-secret-0123456789"
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, SignedHeaders=([^,]+), Signature=(\w+)"
)


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine: no variables, no files, no instance to ask."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "BEDROCK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")


@pytest.fixture
def access_key(no_aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")


def is_signed(raw: bytes, service: str = "bedrock", secret: str = SECRET, region: str = "us-east-1") -> bool:
    """Whether a request as it came over the wire has the right signature for all of it."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    found = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
    if found is None:
        return False
    _, day, in_region, in_service, names, signature = found.groups()
    if (in_region, in_service) != (region, service) or headers["x-amz-date"][:8] != day:
        return False
    if not {"host", "x-amz-date"} <= set(names.split(";")):
        return False
    split = urlsplit(target)
    path = split.path if service == "s3" else quote(split.path, safe="/~")
    query = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in parse_qsl(split.query, True))
    digest = hashlib.sha256(body).hexdigest()
    if headers.get("x-amz-content-sha256", digest) not in (digest, "UNSIGNED-PAYLOAD"):
        return False
    listed = "".join(f"{name}:{headers[name]}\n" for name in names.split(";"))
    canonical = "\n".join(
        (
            method,
            path,
            "&".join(f"{k}={v}" for k, v in query),
            listed,
            names,
            headers.get("x-amz-content-sha256", digest),
        )
    )
    scope = f"{day}/{region}/{service}/aws4_request"
    told = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{told}"
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.compare_digest(hmac.new(key, text.encode(), hashlib.sha256).hexdigest(), signature)
