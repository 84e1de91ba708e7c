"""The stub libraries and the programs of the acceptance suite, built once for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import stub_libraries
from acceptance.bench import Tools


@pytest.fixture(scope="session")
def stub_variables(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    """Version of CUPTI -> environment with stub libraries of that version."""

    @cache
    def build(version: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp(f"stubs{version}-")
        stub_libraries.cuda(folder)
        library = stub_libraries.cupti(version, folder / f"libcupti.so.{version.partition('.')[0]}")
        return {"LD_LIBRARY_PATH": str(folder), "POSTRUN_CUPTI": str(library)}

    return build


@pytest.fixture(scope="session")
def tools(stub_variables: Callable[[str], dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Tools]:
    """Return the suite's programs and stub libraries for a version of CUPTI."""
    native = pytest.importorskip("postrun.native", reason="postrun is not installed")
    if not native.available():
        pytest.skip("the C library was not built")
    from acceptance.build import build_for_stubs

    folder = tmp_path_factory.mktemp("accept")
    built = build_for_stubs(folder / "build", {}, 0.02)
    return lambda version: Tools(**{**vars(built), "stub": stub_variables(version)})
