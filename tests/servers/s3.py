"""A real S3 HTTP endpoint on this machine: moto's server, in a process of its own."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3  # type: ignore[import-untyped]

BUCKET = "backstay-tests"
START_SECONDS = 60
_RUNNING = re.compile(r"Running on http://127\.0\.0\.1:(\d+)")


class PrivateS3:
    """`with PrivateS3().running() as s3:` then `s3.environment` lets a program find it."""

    def __init__(self) -> None:
        self.url = ""

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test-key",
            "AWS_SECRET_ACCESS_KEY": "test-secret",
            "AWS_REGION": "us-east-1",
        }

    @property
    def client(self) -> Any:
        """Looks behind the program's back."""
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id="test-key",
            aws_secret_access_key="test-secret",
            region_name="us-east-1",
        )

    def objects(self, prefix: str = "") -> dict[str, int]:
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        return {one["Key"]: one["Size"] for one in found}

    def unfinished(self) -> list[str]:
        """Uploads that were begun and neither finished nor given up: they cost money and nobody sees them."""
        return [one["Key"] for one in self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])]

    @contextmanager
    def running(self) -> Iterator["PrivateS3"]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            env={**own, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            self.url = f"http://127.0.0.1:{_port(server)}"
            self.client.create_bucket(Bucket=BUCKET)
            yield self
        finally:
            server.kill()
            server.wait()


def _port(server: "subprocess.Popen[str]") -> str:
    """Reads what it says until it names its port, and goes on reading, so that it never waits for a reader."""
    assert server.stderr is not None
    late = threading.Timer(START_SECONDS, server.kill)
    late.start()
    said = []
    for line in server.stderr:
        said.append(line)
        if found := _RUNNING.search(line):
            late.cancel()
            threading.Thread(target=server.stderr.read, daemon=True).start()
            return found[1]
    raise RuntimeError("the S3 server did not start: " + "".join(said)[-2_000:])
