"""Older majors of OpenAI's client, each in a folder of its own under build/, installed once."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parents[2] / "build"
INSTALL_SECONDS = 300


def python_path(major: int) -> str:
    """What PYTHONPATH must be for `import openai` to give that major."""
    if major == 3:
        return ""  # the one that everything else is tested with
    requirements = HERE / f"requirements-{major}.txt"
    folder = BUILD / f"openai-{major}"
    BUILD.mkdir(exist_ok=True)
    with (BUILD / f"openai-{major}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes run tests at once
        stamp = folder / "installed"
        digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
        if not stamp.exists() or stamp.read_text() != digest:
            _install(requirements, folder)
            stamp.write_text(digest)
    return str(folder)


def _install(requirements: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
    command += ["--target", str(folder), "--requirement", str(requirements)]
    subprocess.run(command, check=True, timeout=INSTALL_SECONDS, env={**os.environ, "PYTHONPATH": ""})
