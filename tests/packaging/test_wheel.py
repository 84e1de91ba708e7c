"""Tests of the contents of a wheel of postrun, and that they run."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from builds import MakeEnvironment, build_wheel, pip, run

IMPORT_EVERYTHING = """
import json, postrun, postrun.cli, postrun.errors, postrun.ingest, postrun.analysis, postrun.report_templates
from postrun import native
print(json.dumps({"file": postrun.__file__, "version": postrun.__version__, "native": native.version()}))
"""


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def top_level(wheel: Path) -> set[str]:
    return {name.split("/")[0] for name in names(wheel)}


def data_files(root: Path) -> set[str]:
    """Every file below the three Python parts, by its name in a wheel."""
    return {
        f"postrun/{file.relative_to(root)}"
        for part in ("ingest", "analysis", "report_templates")
        for file in (root / part).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def test_nothing_but_postrun_lands_in_site_packages(wheel: Path, wheel_without_native: Path) -> None:
    for built in (wheel, wheel_without_native):
        assert {re.sub(r"-\d.*\.dist-info$", "-dist-info", name) for name in top_level(built)} == {"postrun", "postrun-dist-info"}


def test_it_holds_every_module_template_and_style(wheel: Path, wheel_without_native: Path, project_root: Path) -> None:
    for built in (wheel, wheel_without_native):
        assert data_files(project_root) <= names(built)
        assert {f"postrun/{file.name}" for file in (project_root / "package").iterdir() if file.is_file()} <= names(built)
        assert {"postrun/__init__.py", "postrun/cli.py", "postrun/py.typed"} <= names(built)


def test_it_holds_what_a_c_program_needs_and_no_c_source(wheel: Path) -> None:
    native = {name.removeprefix("postrun/native/") for name in names(wheel) if name.startswith("postrun/native/")}
    assert {
        "include/postrun.h",
        "lib/libpostrun.so",
        "lib/pkgconfig/postrun.pc",
        "lib/cmake/postrun/postrunConfig.cmake",
        "lib/cmake/postrun/postrunConfigVersion.cmake",
        "lib/cmake/postrun/postrunTargets.cmake",
    } <= native
    assert not [name for name in native if name.endswith((".c", "CMakeLists.txt", ".in"))]


def test_it_holds_the_license(wheel: Path, project_root: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (licence,) = [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]
        assert archive.read(licence) == (project_root / "LICENSE").read_bytes()


def test_it_has_the_notice_and_the_sbom(wheel: Path, wheel_without_native: Path, unpacked: Path, project_root: Path) -> None:
    """They are in the folders that PEP 639 and PEP 770 define.

    The source archive has them at their own paths.
    """
    sbom = "packaging/postrun.cdx.json"
    for built in (wheel, wheel_without_native):
        with zipfile.ZipFile(built) as archive:
            (folder,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
            assert archive.read(f"{folder}/licenses/NOTICE") == (project_root / "NOTICE").read_bytes()
            assert archive.read(f"{folder}/sboms/postrun.cdx.json") == (project_root / sbom).read_bytes()
    for name in ("NOTICE", sbom, "SECURITY.md", "requirements.lock"):
        assert (unpacked / name).read_bytes() == (project_root / name).read_bytes()


def test_the_extension_keeps_to_the_limited_api(wheel: Path, project_root: Path, tmp_path: Path) -> None:
    assert re.fullmatch(r"postrun-[\d.]+-cp311-abi3-\w+\.whl", wheel.name)
    assert [name for name in names(wheel) if name.endswith(".so")].count("postrun/native/_native.abi3.so") == 1
    assert "-DPy_LIMITED_API=0x030b0000" in (project_root / "build" / wheel.stem.split("-", 2)[2] / "build.ninja").read_text()
    if shutil.which("nm") is None:
        pytest.skip("no nm (apt-get install binutils)")
    with zipfile.ZipFile(wheel) as archive:
        extension = archive.extract("postrun/native/_native.abi3.so", tmp_path)
    private = set(re.findall(r"\bU (_Py\w+)", run("nm", "-D", "--undefined-only", extension)))
    # The private names that macros of the limited API expand to (those ending in _SizeT by PY_SSIZE_T_CLEAN): in the stable ABI.
    stable = {"_Py_Dealloc", "_Py_NoneStruct", "_Py_TrueStruct", "_Py_FalseStruct", "_Py_NotImplementedStruct"}
    stable |= {"_PyObject_New", "_PyObject_GC_New"}
    assert {name for name in private if not name.endswith("_SizeT")} <= stable


def test_the_library_exports_only_its_public_names(wheel: Path, tmp_path: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("no nm (apt-get install binutils)")
    with zipfile.ZipFile(wheel) as archive:
        library = archive.extract("postrun/native/lib/libpostrun.so", tmp_path)
    exported = re.findall(r"\b[A-Z] (\w+)$", run("nm", "-D", "--defined-only", library), re.MULTILINE)
    assert exported
    injected = {"InitializeInjection", "InitializeInjectionNvtx2"}  # what the CUDA driver and NVTX look for
    assert {name for name in exported if not name.startswith("postrun_")} == injected
    with zipfile.ZipFile(wheel) as archive:
        header = archive.read("postrun/native/include/postrun.h").decode()
    assert set(exported) == set(re.findall(r"^POSTRUN_API .*?\b(\w+)\(", header, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("clang") is None, reason="no clang (apt-get install clang)")
def test_clang_builds_it_without_a_warning(unpacked: Path, tmp_path: Path) -> None:
    assert build_wheel(unpacked, tmp_path, optimized=False, CC="clang", CFLAGS="-Werror").name.endswith(".whl")


def test_the_same_source_gives_the_same_bytes(wheel: Path, rebuilt: tuple[Path, Path]) -> None:
    """Also when it was built in another folder, and went through the source archive."""
    again, _ = rebuilt
    assert names(again) == names(wheel)
    assert again.read_bytes() == wheel.read_bytes()


def test_an_installed_wheel_runs(installed: Path, tmp_path: Path) -> None:
    output = run(installed, "-P", "-c", IMPORT_EVERYTHING, cwd=tmp_path)
    assert f'"file": "{installed.parent.parent}/' in output
    assert '"native": "' in output
    assert "report" in run(installed.parent / "postrun", "--help", cwd=tmp_path)


def test_without_a_compiler_everything_but_the_c_side_runs(
    wheel_without_native: Path, make_environment: MakeEnvironment, tmp_path: Path
) -> None:
    assert wheel_without_native.name.endswith("-py3-none-any.whl")
    assert not [name for name in names(wheel_without_native) if name.endswith((".so", ".c"))]
    python = make_environment("pure")
    pip(python, "install", "--no-deps", "--no-index", wheel_without_native)
    assert '"native": null' in run(python, "-P", "-c", IMPORT_EVERYTHING, cwd=tmp_path)
    done = subprocess.run([python, "-P", "-c", "from postrun import native; native.include_dir()"], capture_output=True, text=True)
    assert "reinstall with a C compiler" in done.stderr


def test_an_editable_installation_is_live(rebuilt: tuple[Path, Path], make_environment: MakeEnvironment, tmp_path: Path) -> None:
    built, tree = rebuilt
    python = make_environment("editable")
    build_folder = f"--config-settings=build-dir={built.parent / 'build'}"  # nothing is compiled again
    pip(python, "install", "--no-build-isolation", "--no-deps", "--no-index", build_folder, "-e", tree)
    (tree / "ingest" / "added_later.py").write_text("VALUE = 'a module added after the installation'\n")
    (tree / "package" / "added_later.py").write_text("VALUE = 'and one at the top'\n")
    code = "\nfrom postrun.ingest.added_later import VALUE; print(VALUE)\nfrom postrun.added_later import VALUE; print(VALUE)\n"
    output = run(python, "-P", "-c", IMPORT_EVERYTHING + code, cwd=tmp_path)
    assert f'"file": "{tree}/package/__init__.py"' in output
    assert '"native": "' in output
    assert output.endswith("a module added after the installation\nand one at the top\n")


def test_an_editable_installation_works_without_a_compiler(unpacked: Path, make_environment: MakeEnvironment, tmp_path: Path) -> None:
    tree = tmp_path / "postrun"
    shutil.copytree(unpacked, tree)
    python = make_environment("editable-pure")
    options = ("--no-build-isolation", "--no-deps", "--no-index", "-e", tree)
    pip(python, "install", *options, POSTRUN_NO_NATIVE="1", CC="/nonexistent/cc")
    assert '"native": null' in run(python, "-P", "-c", IMPORT_EVERYTHING, cwd=tmp_path)


def test_the_version_is_the_same_everywhere(wheel: Path, installed: Path, tmp_path: Path) -> None:
    output = run(installed, "-P", "-c", IMPORT_EVERYTHING, cwd=tmp_path)
    version = wheel.name.split("-")[1]
    assert f'"version": "{version}"' in output
    assert f'"native": "{version}"' in output
