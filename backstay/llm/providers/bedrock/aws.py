"""AWS: the region, the hosts, the credentials, and the signature of every request.

Credentials are found and refreshed by botocore, as all of AWS's own tools do it, and live in memory only.
"""

import asyncio
import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from yarl import URL

from backstay.core.errors import ProviderHeld, Transient, UsageError
from backstay.handlers.function import in_thread
from backstay.llm.endpoint import parts_of
from backstay.llm.provider import ProviderAccess

REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
KEY_ENV: Final = "AWS_BEARER_TOKEN_BEDROCK"
BUCKET_ENV: Final = "BEDROCK_BATCH_BUCKET"
ROLE_ENV: Final = "BEDROCK_BATCH_ROLE_ARN"
RECORDS_MIN_ENV: Final = "BEDROCK_BATCH_RECORDS_MIN"
RECORDS_MIN: Final = 100  # Bedrock refuses smaller jobs; it is a quota of the account
RECORDS_MIN_MAX: Final = 1_000
SERVICE: Final = "bedrock"
S3: Final = "s3"
SOME_REGION: Final = "us-east-1"  # for a service that is not AWS's own, which does not look at it
CREDENTIALS_SECONDS: Final = 10.0
LINK_SECONDS: Final = 3_600  # how long a link to an object works
IN_LOOP_BYTES_MAX: Final = 1 << 18  # a larger body is signed in a thread

_OWN_HOST: Final = re.compile(r"(?:^|\.)bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.(?:vpce\.|api\.)?(?:amazonaws|aws)\.")
_AMAZON: Final = re.compile(r"\.(?:amazonaws\.com(?:\.cn)?|api\.aws)$")
_REGION: Final = re.compile(r"[a-z]{2,3}(?:-[a-z0-9]+)+")
_BUCKET: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/([\w./-]*))?", re.ASCII)
_ROLE: Final = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/.+", re.ASCII)
_NOTHING_FOUND: Final = "no AWS credentials were found"
_FIND: Final = (
    f"set {KEY_ENV}, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run where a role gives them"
)
_SIGNATURE_NEEDS: Final = f"{KEY_ENV} is not set, and a signature needs"
_S3_NEEDS: Final = "batches are kept in S3, which needs"


def region_in(environ: Mapping[str, str]) -> str | None:
    found = next((value for name in REGIONS if (value := environ.get(name))), None)
    if found is not None and not _REGION.fullmatch(found):
        raise UsageError(f"the AWS region {found[:40]!r} is not valid", hint=f"set {REGIONS[0]}, for example us-east-1")
    return found


class BedrockAccess(ProviderAccess):
    """The base URL depends on the region."""

    @property
    def base_url(self) -> str:
        region = region_in(os.environ)
        suffix = ".cn" if region is not None and region.startswith("cn-") else ""
        return "" if region is None else f"https://bedrock-runtime.{region}.amazonaws.com{suffix}"


def check_ready(base_url: str, has_batches: bool, has_key: bool) -> None:
    """Refuses a run that this machine cannot authorise, before anything is sent."""
    if has_batches:
        batch_place()
        records_min()
    if is_amazon(parts_of(base_url)) and (has_batches or not has_key):
        require_botocore(_S3_NEEDS if has_key else _SIGNATURE_NEEDS)
        if load_credentials() is None:
            raise UsageError(_NOTHING_FOUND, hint=_FIND)


def batch_place() -> tuple[str, str, str]:
    """The bucket and the prefix in it for batches, and the role with which Bedrock reads and writes there."""
    place, role = os.environ.get(BUCKET_ENV, ""), os.environ.get(ROLE_ENV, "")
    if (named := _BUCKET.fullmatch(place)) is None:
        hint = f"set {BUCKET_ENV} to s3://bucket/prefix, in the region of the requests"
        said = f"{BUCKET_ENV} is not s3://bucket/prefix" if place else f"{BUCKET_ENV} is not set"
        raise UsageError(f"{said}, and Bedrock reads batches from a bucket of yours", hint=hint)
    if not _ROLE.fullmatch(role):
        hint = f"set {ROLE_ENV} to the ARN of a role that Bedrock may assume and that may read and write the bucket"
        said = f"{ROLE_ENV} is not the ARN of a role" if role else f"{ROLE_ENV} is not set"
        raise UsageError(f"{said}, and Bedrock needs a role to run batches", hint=hint)
    return named[1], (named[2] or "").strip("/"), role


def records_min() -> int:
    given = os.environ.get(RECORDS_MIN_ENV) or str(RECORDS_MIN)
    if not given.isdecimal() or not 1 <= int(given) <= RECORDS_MIN_MAX:
        raise UsageError(
            f"{RECORDS_MIN_ENV} must be a number from 1 to {RECORDS_MIN_MAX}, not {given[:40]!r}",
            hint=f"leave it out; Bedrock's own minimum is {RECORDS_MIN}",
        )
    return int(given)


def require_s3(base: SplitResult) -> None:
    if is_amazon(base):
        require_botocore(_S3_NEEDS)


def require_botocore(what: str) -> None:
    if find_spec("botocore") is None:
        instead = f", or set {KEY_ENV}" if what == _SIGNATURE_NEEDS else ""
        hint = f"pip install 'backstay[bedrock]'{instead}"
        raise UsageError(f"{what} the package botocore, which is not installed", hint=hint)


def is_amazon(base: SplitResult) -> bool:
    return _AMAZON.search(base.hostname or "") is not None


def region_of(base: SplitResult) -> str:
    """The region that the address names, else that of the environment."""
    named = _OWN_HOST.search(base.hostname or "")
    return named[1] if named is not None else region_in(os.environ) or SOME_REGION


def control_url(base: SplitResult) -> str:
    """Where batches are made: another host than that of calls, in the same region."""
    if given := os.environ.get("AWS_ENDPOINT_URL_BEDROCK"):
        return parts_of(given.rstrip("/")).geturl()
    host = base.netloc.replace("bedrock-runtime", "bedrock") if is_amazon(base) else base.netloc
    return f"{base.scheme}://{host}{base.path.rstrip('/')}"


def bucket_url(base: SplitResult, bucket: str) -> str:
    if given := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        return f"{parts_of(given.rstrip('/')).geturl()}/{bucket}"
    region = region_of(base)
    suffix = ".cn" if region.startswith("cn-") else ""
    # A dot in the name of a bucket would not fit the certificate.
    if "." in bucket:
        return f"https://s3.{region}.amazonaws.com{suffix}/{bucket}"
    return f"https://{bucket}.s3.{region}.amazonaws.com{suffix}"


def load_credentials() -> Any:
    """By botocore's own chain: environment, profile, single sign-on, container, instance. None: there are none."""
    from botocore.session import Session  # type: ignore[import-untyped]

    try:
        return Session().get_credentials()
    except _credential_errors() as error:
        raise UsageError(f"the AWS credentials cannot be used: {error}", hint=_FIND) from None


def _credential_errors() -> tuple[type[Exception], ...]:
    """The errors of botocore: AWS refuses, or a tool, a file or an answer on the user's machine is not valid."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    return BotoCoreError, ClientError, OSError, ValueError, KeyError, UsageError


def sign_for(base: SplitResult, key: str | None) -> "AwsSigner":
    if key is None and is_amazon(base):
        require_botocore(_SIGNATURE_NEEDS)
    return AwsSigner(base, key)


class AwsSigner:
    """Signs requests to Bedrock's own hosts and to the bucket. Other hosts get no signature."""

    def __init__(self, base: SplitResult, key: str | None) -> None:
        self.base = base
        self._key = key
        self._region = region_of(base)
        self._optional = not is_amazon(base)
        self._hosts = {base.netloc: SERVICE, urlsplit(control_url(base)).netloc: SERVICE}
        self._bucket = ""  # the beginning of its addresses
        self._credentials: Any = None
        self._searched = False
        self._lock = asyncio.Lock()

    def allow_bucket(self, url: str) -> None:
        """From now on also requests to this bucket are signed."""
        self._bucket = url

    async def sign(self, method: str, url: URL, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        service = self._service_of(url)
        if service is None:
            return {}
        if service == SERVICE and self._key is not None:  # every request to the own host has it already
            is_own = urlsplit(str(url)).netloc == self.base.netloc
            return {} if is_own else {"authorization": f"Bearer {self._key}"}
        frozen = await self._frozen()
        if frozen is None:
            return {}
        if len(body) <= IN_LOOP_BYTES_MAX:
            return self._signature_headers(service, frozen, method, url, body, headers)
        signed: dict[str, str] = await in_thread(
            lambda: self._signature_headers(service, frozen, method, url, body, headers)
        )
        return signed

    async def link(self, url: str) -> str:
        """An address from which an object can be read for a while without further authorisation."""
        frozen = await self._frozen()
        if frozen is None:
            return url
        from botocore.auth import S3SigV4QueryAuth  # type: ignore[import-untyped]
        from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]

        request = AWSRequest("GET", url)
        S3SigV4QueryAuth(frozen, S3, self._region, expires=LINK_SECONDS).add_auth(request)
        return str(request.url)

    def _service_of(self, url: URL) -> str | None:
        bare = str(url).partition("?")[0]
        if self._bucket and (bare == self._bucket or bare.startswith(f"{self._bucket}/")):
            return S3
        return self._hosts.get(urlsplit(bare).netloc)

    def _signature_headers(
        self, service: str, frozen: Any, method: str, url: URL, body: bytes, headers: Mapping[str, str]
    ) -> dict[str, str]:
        from botocore.auth import S3SigV4Auth, SigV4Auth
        from botocore.awsrequest import AWSRequest

        # The query as values: AWS signs them in one way of quoting, whatever was sent.
        params = dict(parse_qsl(url.raw_query_string, keep_blank_values=True))
        bare = str(url).partition("?")[0]
        request = AWSRequest(method, bare, dict(headers), body, params)
        (S3SigV4Auth if service == S3 else SigV4Auth)(frozen, service, self._region).add_auth(request)
        return {name.lower(): value for name, value in request.headers.items() if name.lower() not in headers}

    async def _frozen(self) -> Any:
        """Credentials that are valid now. Botocore refreshes them a quarter of an hour before they run out."""
        known = self._credentials
        if known is not None and not _is_stale(known):
            return known.get_frozen_credentials()
        async with self._lock:
            try:
                async with asyncio.timeout(CREDENTIALS_SECONDS):
                    return await self._refresh()
            except TimeoutError:
                raise Transient("AWS gave no credentials in time, so nothing was sent") from None

    async def _refresh(self) -> Any:
        if self._optional and find_spec("botocore") is None:
            return None
        try:
            if self._credentials is None and not (self._searched and self._optional):
                self._credentials = await in_thread(load_credentials)
                self._searched = True
            if self._credentials is not None:
                return await in_thread(self._credentials.get_frozen_credentials)
        except _credential_errors() as error:
            raise ProviderHeld(f"the AWS credentials cannot be refreshed: {error}") from None
        if self._optional:
            return None
        raise ProviderHeld(f"{_NOTHING_FOUND}; {_FIND}")


def _is_stale(credentials: Any) -> bool:
    needed = getattr(credentials, "refresh_needed", None)
    return needed is not None and bool(needed())
