"""Builds the software of the cases: the package postrun from this checkout, and the workloads; checkout and compilers -> Tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from .bench import Tools, tail

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "tests" / "gpu" / "workloads"
WORKLOAD = ("workload", "basics", "cycles", "threads", "graphs", "clients", "costs")  # C sources of the program that begins sessions
BUILD_SECONDS = 300  # for the longest step


class BuildError(Exception):
    """Something could not be built; the message has the compiler's last lines."""


def build(folder: Path) -> Tools:
    """The package and the programs for a real device. Raises BuildError."""
    nvcc = _nvcc()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    site = folder / "site"
    with ThreadPoolExecutor(3) as pool:
        package = pool.submit(_package, folder, site)
        device = pool.submit(_device, nvcc, folder / "device.o")
        per_thread = pool.submit(_device, nvcc, folder / "device_per_thread.o", "--default-stream", "per-thread")
        package.result()
        objects = {"": device.result(), "_per_thread": per_thread.result()}
    native = site / "postrun" / "native"
    programs = {}
    for suffix, device_object in objects.items():
        built = [_object(SOURCES / f"{name}.c", folder, native / "include") for name in WORKLOAD]
        programs[f"workload{suffix}"] = _link(nvcc, folder / f"workload{suffix}", [*built, device_object], native / "lib")
    plain = _object(SOURCES / "plain.c", folder, native / "include")
    programs["plain"] = _link(nvcc, folder / "plain", [plain, objects[""]], None)
    with suppress(BuildError):  # without the headers of NVTX the case says so
        _call([nvcc, "-o", folder / "nvtx_ranges", ROOT / "tests" / "native" / "nvtx_ranges.c", "-ldl", "-lpthread"])
        programs["nvtx_ranges"] = str(folder / "nvtx_ranges")
    return Tools(sys.executable, str(site), str(native / "lib" / "libpostrun.so"), programs, str(SOURCES), cupti=_cupti())


def build_for_stubs(folder: Path, stub: dict[str, str], scale: float) -> Tools:
    """Return the programs for stub libraries, with this Python's postrun."""
    import postrun.native

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    library = postrun.native.library()
    include, device = postrun.native.include_dir(), _object(SOURCES / "device_stub.c", folder, postrun.native.include_dir())
    link = ["-L", library.parent, "-lpostrun", f"-Wl,-rpath,{library.parent}"]
    workload = folder / "workload"
    objects = [_object(SOURCES / f"{name}.c", folder, include) for name in WORKLOAD]
    _call([_compiler(), "-o", workload, *objects, device, *link, "-ldl", "-lpthread"])
    plain = folder / "plain"
    _call([_compiler(), "-o", plain, _object(SOURCES / "plain.c", folder, include), device, "-ldl", "-lpthread"])
    programs = {"workload": str(workload), "workload_per_thread": str(workload), "plain": str(plain)}
    return Tools(sys.executable, None, str(library), programs, str(SOURCES), stub, scale=scale)


def _cupti() -> str | None:
    """The newest libcupti of the packages of this Python."""
    actual = [path for folder in sys.path for path in Path(folder or ".").glob("nvidia/*/lib/libcupti.so.*")]
    return str(max(actual, key=lambda path: path.name)) if actual else None


def _call(command: Sequence[object]) -> None:
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=BUILD_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise BuildError(f"{Path(str(command[0])).name}: {tail(done.stdout + done.stderr)}")


def _compiler() -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise BuildError("no C compiler (cc, gcc) on the PATH")
    return compiler


def _nvcc() -> str:
    folders = [Path(os.environ.get(name, "/usr/local/cuda"), "bin", "nvcc") for name in ("CUDA_HOME", "CUDA_PATH")]
    for candidate in (shutil.which("nvcc"), *folders):
        if candidate and Path(candidate).is_file():
            return str(candidate)
    raise BuildError("nvcc is neither on the PATH nor in $CUDA_HOME/bin or /usr/local/cuda/bin")


def _package(folder: Path, site: Path) -> None:
    """Install the recording side of postrun into ``site``, without its dependencies."""
    cmake = shutil.which("cmake")
    if cmake is None:
        raise BuildError("no cmake on the PATH")
    package, work = site / "postrun", folder / "cmake"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(ROOT / "native" / "package", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "native").mkdir()
    shutil.copy(ROOT / "native" / "__init__.py", package / "native")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    settings = {
        "POSTRUN_PYTHON": "ON",
        "SKBUILD_SABI_COMPONENT": "Development.SABIModule",
        "SKBUILD_SABI_VERSION": "3.11",
        "CMAKE_INSTALL_LIBDIR": "lib",
        "CMAKE_INSTALL_INCLUDEDIR": "include",
        "CMAKE_INSTALL_PREFIX": package / "native",
        "Python_EXECUTABLE": sys.executable,
    }
    _call([cmake, *generator, "-S", ROOT / "native", "-B", work, *(f"-D{name}={value}" for name, value in settings.items())])
    _call([cmake, "--build", work, "--parallel", str(os.cpu_count() or 1)])
    _call([cmake, "--install", work])


def _device(nvcc: str, built: Path, *flags: str) -> Path:
    """The device work; for the GPU that is there, else for sm_90."""
    command = [nvcc, "-O2", *flags, "-c", SOURCES / "device.cu", "-o", built]
    try:
        _call([*command, "-arch=native"])
    except BuildError:
        _call([*command, "-arch=sm_90"])
    return built


def _object(source: Path, folder: Path, include: Path) -> Path:
    built = folder / f"{source.stem}.o"
    if not built.exists():
        _call([_compiler(), "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", f"-I{include}", "-c", source, "-o", built])
    return built


def _link(nvcc: str, built: Path, objects: Sequence[Path], library: Path | None) -> str:
    """Build a program with the static CUDA runtime, and ``library`` unless it is None."""
    flags = [] if library is None else [f"-L{library}", "-lpostrun", "-Xlinker", f"-rpath,{library}"]
    _call([nvcc, "-o", built, *objects, *flags, "-ldl", "-lpthread"])
    return str(built)
