"""postrun.capture is one module to its users, although it has several files."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from postrun import capture
from postrun.native.profiling.engine.one_function import RECORDING, stack_with_one_function, with_one_function

DOCUMENTATION = Path(__file__).resolve().parent.parent.parent.parent / "docs" / "capture.md"
NATIVE = Path(capture.__file__).parents[1]
FILES = [*sorted(NATIVE.glob("capture/*.py")), *sorted(NATIVE.glob("recording/*.py"))]
MODULES = ["postrun.native." + ".".join(file.relative_to(NATIVE).with_suffix("").parts).removesuffix(".__init__") for file in FILES]


def test_what_is_documented_is_there() -> None:
    """Every documented name of ``capture.`` and ``smprof.`` exists."""
    text = DOCUMENTATION.read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:capture|smprof)\.([A-Za-z_]\w*)", text)) - {"md", "py"}
    assert {"annotate", "session", "SMProfiler", "Config", "annotation_begin", "annotation_end", "counter"} <= named
    assert {name for name in named if not hasattr(capture, name)} == set()
    assert named <= set(capture.__all__) | {"annotation_begin", "annotation_end"}


def test_objects_are_pickled_and_found_again() -> None:
    """As workers of multiprocessing get them."""
    config = pickle.loads(pickle.dumps(capture.Config({"EnableCuda": "1"})))
    assert (type(config), config.profiler) == (capture.Config, {"EnableCuda": "1"})
    assert pickle.loads(b"cpostrun.capture\nConfig\n.") is capture.Config  # written where capture was one file
    for name in ("session", "gpu_window", "torch_trace_handler"):
        thing = getattr(capture, name)
        assert pickle.loads(pickle.dumps(thing)) is thing


def plain() -> int:
    return 1


def generator() -> Generator[int]:
    yield 1


async def coroutine() -> int:
    return 1


async def asynchronous() -> AsyncGenerator[int]:
    yield 1


@pytest.mark.skipif(capture.annotate("x")(plain) is plain, reason="this installation has no C library")
@pytest.mark.parametrize("function", [plain, generator, coroutine, asynchronous])
def test_a_decorator_is_no_function_of_a_profile_wherever_it_is_made(function: Callable[[], Any]) -> None:
    """Profile main (1 s, own 0.25 s), its decorator (own 0.25 s), and 0.5 s below."""
    result: Any = capture.annotate("x")(function)
    code = result.__code__
    wrapper, main, decorated = (code.co_filename, code.co_firstlineno, code.co_name), ("/a.py", 1, "main"), ("/a.py", 9, function.__name__)
    actual = with_one_function({
        main: (1, 1, 0.25, 1.0, {}),
        wrapper: (1, 1, 0.25, 0.75, {main: (1, 1, 0.25, 0.75)}),
        decorated: (1, 1, 0.5, 0.5, {wrapper: (1, 1, 0.5, 0.5)}),
    })  # fmt: skip
    assert actual == {
        main: (1, 1, 0.25, 1.0, {}),
        decorated: (1, 1, 0.5, 0.5, {main: (1, 1, 0.5, 0.5)}),
        RECORDING: (1, 1, 0.25, 0.25, {main: (1, 1, 0.25, 0.25)}),
    }
    stack = ["main\0/a.py\x001", f"{code.co_name}\0{code.co_filename}\x007", "leaf\0/a.py\x009"]
    assert stack_with_one_function(stack) == [stack[0], stack[2]]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_any_of_its_files_does_is_the_recorders(file: Path) -> None:
    """main (1 s, own 0.25 s) calls a function of the file (0.75 s)."""
    main, recorder = ("/a.py", 1, "main"), (str(file), 1, "f")
    actual = with_one_function({main: (1, 1, 0.25, 1.0, {}), recorder: (1, 1, 0.75, 0.75, {main: (1, 1, 0.75, 0.75)})})
    assert actual == {main: (1, 1, 0.25, 1.0, {}), RECORDING: (1, 1, 0.75, 0.75, {main: (1, 1, 0.75, 0.75)})}
    stack = stack_with_one_function(["main\0/a.py\x001", f"f\0{file}\x001"])
    assert [frame.partition("\0")[0] for frame in stack] == ["main", "{postrun's own recording}"]


def test_files_of_a_program_that_are_called_so_are_its_own() -> None:
    theirs = ("/a/capture_images.py", 1, "capture")
    stats = {theirs: (1, 1, 1.0, 1.0, {})}
    assert with_one_function(stats) == stats


def test_importing_it_loads_no_more_than_it_needs(tmp_path: Path) -> None:
    """Only the modules of postrun that name and write files are loaded.

    Large modules of Python that only some users need are not loaded either.
    """
    code = "import sys, postrun.capture; print(*sorted(name for name in sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    loaded = set(done.stdout.split())
    of_postrun = {name for name in loaded if name.partition(".")[0] == "postrun"}
    assert of_postrun - {*MODULES} <= {
        "postrun", "postrun.capture", "postrun.version", "postrun.native", "postrun.native._native", "postrun.errors", "postrun.modes",
    }  # fmt: skip
    bare = subprocess.run([sys.executable, "-P", "-c", code.replace(", postrun.capture", "")], capture_output=True, text=True, check=True)
    assert (loaded - set(bare.stdout.split())) & {"socket", "gzip", "shutil", "json", "subprocess", "multiprocessing", "asyncio"} == set()


def test_each_file_can_be_imported_alone(tmp_path: Path) -> None:
    """In any order: none needs another that needs it."""
    for module in MODULES:
        code = f"import {module}, postrun.capture; postrun.capture.counter('x', 1)"
        done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path)
        assert (module, done.returncode, done.stderr) == (module, 0, "")
