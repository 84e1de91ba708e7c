"""``postrun doctor``: checks of everything that reports need on this machine, each with the command that fixes it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

from ..messages import echo
from .parts import print_json

APT_LINE: Final = "apt-get install -y --no-install-recommends libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0"

_LOW_DISK: Final = 2 << 30  # bytes; a large trace may not fit into less


@click.command(short_help="Check that this machine can create reports.")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON on standard output.")
def doctor(as_json: bool) -> None:
    """Check that this machine can create reports: Pango, fonts, versions, disk.
    Exit code 1 where something is missing."""
    results = checks()
    if as_json:
        print_json([asdict(check) for check in results])
    else:
        for check in results:
            mark = {"ok": "✓", "warning": "!", "missing": "✕"}[check.state]
            echo(f"{mark} {check.name}: {check.detail}" + (f"\n    mend it with: {check.remedy}" if check.remedy else ""))
    if any(check.state == "missing" for check in results):
        sys.exit(1)


@dataclass(frozen=True, slots=True)
class Check:
    """A check. ``state``: "ok", "warning" (works, with a loss that ``detail`` names) or "missing"."""

    name: str
    state: str
    detail: str
    remedy: str | None = None


def checks() -> list[Check]:
    """Run every check; takes about two seconds."""
    return [_python(), *_packages(), _native(), *_gpus(), *_pdf(), _fonts(), *_disk()]


def _python() -> Check:
    return Check("Python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores")


def _packages() -> list[Check]:
    checks = []
    for name in ("click", "duckdb", "polars", "pyarrow", "jinja2", "matplotlib", "weasyprint", "isal", "zstandard", "uharfbuzz"):
        try:
            checks.append(Check(name, "ok", importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            checks.append(Check(name, "missing", "not installed", "pip install postrun"))
    return checks


def _native() -> Check:
    from .. import native

    version = native.version()
    if version is None:
        return Check(
            "C library", "warning", "not built: traces are read by the slower Python scanner",
            "install a C compiler, then: pip install --force-reinstall --no-deps postrun",
        )  # fmt: skip
    return Check("C library", "ok", version)


# Tries what `postrun record --gpu` does: initializes CUDA and attaches CUPTI, in a child process, which this may crash.
_TRY_GPUS: Final = """
import sys, tempfile, warnings
from postrun import capture
with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    with capture.session(folder, sample_ms=0, gpu=True):
        pass
print(*(str(one.message).removeprefix("GPU activity is not recorded: ") for one in told), sep="; ")
"""


def _gpus() -> list[Check]:
    """Check whether GPU activity can be recorded here; no check without the C library."""
    from .. import native
    from ..native.record import gpu as record_gpu

    if native.version() is None:
        return []
    vendor = record_gpu.other_gpus()
    if not native.gpu_driver() and vendor is not None:
        return [Check("GPU recording", "warning", f"GPU activity is not captured on {vendor} GPUs; use PyTorch's profiler")]
    if not native.gpu_driver():
        return [Check("GPU recording", "ok", "no NVIDIA driver on this machine (libcuda.so.1): there is nothing to record")]
    done = _run(_TRY_GPUS)
    if done is None:
        return [Check("GPU recording", "warning", "the driver did not answer for 60 s: is a GPU in trouble? See what nvidia-smi says")]
    if done.returncode:
        return [Check("GPU recording", "warning", f"the attempt ended with: {_last_line(done)}")]
    reason = done.stdout.strip()
    return [Check("GPU recording", "warning" if reason else "ok", reason or "CUDA and CUPTI work here")]


def _run(code: str) -> subprocess.CompletedProcess[str] | None:
    """Run Python code in a child process; None after 60 s."""
    try:
        return subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return None


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def _pdf() -> list[Check]:
    # WeasyPrint prints a banner on standard output if Pango is missing, and a signal can kill it if the system has no font.
    script = "import warnings; warnings.simplefilter('ignore'); import weasyprint; weasyprint.HTML(string='<p>a</p>').write_pdf()"
    done = _run(script)
    if done is None:
        return [Check("PDF", "missing", "a one-line PDF took more than 60 s", None)]
    if done.returncode == 0:
        pdf = Check("PDF", "ok", "WeasyPrint and Pango work")
    elif done.returncode < 0:
        pdf = Check("PDF", "warning", f"WeasyPrint died of signal {-done.returncode} without a system font; reports bring their own")
    else:
        pdf = Check("PDF", "missing", f"{_last_line(done)}; report.html and report.json still work", APT_LINE)
    from ctypes.util import find_library

    subset = (
        Check("HarfBuzz subsetter", "ok", "libharfbuzz-subset found")
        if find_library("harfbuzz-subset")
        else Check("HarfBuzz subsetter", "warning", "libharfbuzz-subset0 is missing: PDF takes about half as long again", APT_LINE)
    )
    return [pdf, subset]


def _fonts() -> Check:
    from ..report_templates.text import fonts

    families = list(dict.fromkeys(face.family for face in (*fonts.variable_faces(), *fonts.fixed_faces())))
    if fonts.FALLBACK not in families:
        return Check("Fonts", "warning", "Matplotlib has no DejaVu Sans; a system font is used", "apt-get install -y fonts-dejavu-core")
    if missing := [family for family in (fonts.SANS, fonts.MONO) if family not in families]:
        return Check("Fonts", "warning", f"not installed: {' and '.join(missing)}; reports are in {fonts.FALLBACK}", "pip install postrun")
    asian = "; Chinese, Japanese, Korean: " + (fonts.CJK if fonts.cjk_face() else "only with a system font, or with postrun[cjk]")
    return Check("Fonts", "ok", ", ".join(families) + asian)


def _disk() -> list[Check]:
    checks = []
    for name, folder in (("Disk, here", Path.cwd()), ("Disk, temporary files", Path(tempfile.gettempdir()))):
        try:
            free = shutil.disk_usage(folder).free
            writable = os.access(folder, os.W_OK)
        except OSError as error:
            checks.append(Check(name, "missing", f"{folder}: {error.strerror}", None))
            continue
        detail = f"{free / (1 << 30):.1f} GiB free in {folder}"
        if not writable:
            checks.append(Check(name, "warning", f"{folder} cannot be written", "choose another folder with -o, or set TMPDIR"))
        elif free < _LOW_DISK:
            checks.append(Check(name, "warning", f"{detail}: a large trace may not fit", "free some space, or set TMPDIR"))
        else:
            checks.append(Check(name, "ok", detail))
    return checks
