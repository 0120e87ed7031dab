"""Virtual environments for peers that cannot share one, since each pins another version of the same package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.probes import NotMeasured

HERE = Path(__file__).resolve().parent


def python_of(name: str | None) -> str:
    """The interpreter to run a probe with: our own, or that of bench/.venv-NAME, which is made when it is needed."""
    if name is None:
        return sys.executable
    folder, wanted = HERE / f".venv-{name}", HERE / f"requirements-{name}.txt"
    python, stamp = folder / "bin" / "python", folder / ".installed"
    if not stamp.exists() or wanted.stat().st_mtime > stamp.stat().st_mtime:
        print(f"bench: making {folder.name}", file=sys.stderr, flush=True)
        # Not pip, which tries versions of one peer's many dependencies for half an hour.
        uv("venv", "--clear", "--python", sys.executable, str(folder))
        uv("pip", "install", "--python", str(python), "-r", str(wanted))
        stamp.touch()  # last, so that an interrupted install is done again
    return str(python)


def uv(*arguments: str) -> None:
    command = [str(Path(sys.executable).with_name("uv")), "--quiet", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NotMeasured("uv is not installed") from None
    if done.returncode != 0:
        said = " ".join(done.stderr.split())
        raise NotMeasured(f"it could not be installed: {said[:200]}")
