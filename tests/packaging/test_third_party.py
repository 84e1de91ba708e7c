"""NOTICE, the SBOM and the container image name exactly the packages of the lock files."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SBOM = "packaging/postrun.cdx.json"


@pytest.fixture(scope="module")
def third_party(project_root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("third_party", project_root / "packaging" / "third_party.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["third_party"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def lock(project_root: Path) -> dict[str, set[str]]:
    """Map name==version in requirements.lock to its hashes, with code of the test."""
    entries = re.split(r"^(?=[A-Za-z])", (project_root / "requirements.lock").read_text(), flags=re.MULTILINE)[1:]
    return {entry.split()[0]: set(re.findall(r"sha256:(\w+)", entry)) for entry in entries}


@pytest.fixture(scope="module")
def sbom(project_root: Path) -> dict[str, Any]:
    return dict(json.loads((project_root / SBOM).read_text()))


def test_notice_lists_exactly_the_packages_of_the_lock(project_root: Path, lock: dict[str, set[str]]) -> None:
    """If this fails: make notice."""
    text = (project_root / "NOTICE").read_text()
    listed = re.findall(r"^(\S+) (\S+)\n    License: (.+)\n    (https?://\S+)$", text, re.MULTILINE)
    assert [f"{name}=={version}" for name, version, _, _ in listed] == list(lock)
    assert text.count("License: ") == len(lock) > 30


def test_sbom_lists_exactly_the_packages_of_the_lock(project_root: Path, lock: dict[str, set[str]], sbom: dict[str, Any]) -> None:
    """If this fails: make notice."""
    licenses = {}
    for component in sbom["components"]:
        assert component["purl"] == component["bom-ref"] == f"pkg:pypi/{component['name']}@{component['version']}"
        (choice,) = component["licenses"]
        assert choice.get("expression") or choice["license"]["name"]
        files = component["externalReferences"][0]
        assert files["type"] == "distribution"
        assert {entry["alg"] for entry in files["hashes"]} == {"SHA-256"}
        licenses[f"{component['name']}=={component['version']}"] = {entry["content"] for entry in files["hashes"]}
    assert licenses == lock
    about = sbom["metadata"]["component"]
    project = tomllib.loads((project_root / "pyproject.toml").read_text())["project"]
    assert (about["name"], about["version"]) == (project["name"], project["version"])
    assert (sbom["bomFormat"], sbom["specVersion"], sbom["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", sbom["serialNumber"])


def test_licenses_come_from_the_metadata_of_the_packages(third_party: ModuleType, tmp_path: Path) -> None:
    packages = third_party.locked("click==8.5.1 \\\n    --hash=sha256:" + "a" * 64 + "\nx==1 ; sys_platform == 'win32' \\\n")
    assert [(p.name, p.version, p.marker, p.hashes) for p in packages] == [
        ("click", "8.5.1", "", ["a" * 64]),
        ("x", "1", "sys_platform == 'win32'", []),
    ]
    assert third_party.license_of({"License-Expression": "MIT OR 0BSD", "License": "other"}) == "MIT OR 0BSD"
    assert third_party.license_of({"License": "Apache 2.0"}) == "Apache-2.0"
    assert (
        third_party.license_of({"License": "Copyright (c)\nall the text", "Classifier": "License :: OSI Approved :: MIT License"}) == "MIT"
    )
    assert third_party.facts("click") == ("BSD-3-Clause", "https://github.com/pallets/click/")
    with pytest.raises(SystemExit, match="x is not installed"):
        third_party.notice(packages)


def test_the_image_installs_locked_packages_as_another_user_than_root(project_root: Path) -> None:
    text = (project_root / "examples" / "schedules" / "Containerfile").read_text()
    steps = re.sub(r"\\\n\s*", "", text)
    installs = re.findall(r"\bpip install (.*?)(?: && |$)", steps, re.MULTILINE)
    hashed, offline = installs
    assert "--require-hashes" in hashed
    assert {"--no-index", "--no-deps", "--no-build-isolation"} <= set(offline.split())
    assert "-r /src/requirements-dask.lock" in hashed
    assert re.findall(r"^FROM (\S+)", steps, re.MULTILINE) == ["${BASE}", "${BASE}"]
    assert re.findall(r"^USER (\S+)", steps, re.MULTILINE)[-1] == "10001:10001"
    base, dask = ((project_root / name).read_text() for name in ("requirements.lock", "requirements-dask.lock"))
    pins = re.findall(r"^\S+==\S+", base, re.MULTILINE)
    assert set(pins) < set(re.findall(r"^\S+==\S+", dask, re.MULTILINE))
    assert re.search(r"^distributed==", dask, re.MULTILINE)


def test_the_image_is_built_from_the_sources_alone(project_root: Path) -> None:
    """.dockerignore leaves out all but the files for pyproject.toml and Containerfile."""
    rules = [line for line in (project_root / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    kept = {rule[1:] for rule in rules if rule.startswith("!")}
    project = tomllib.loads((project_root / "pyproject.toml").read_text())
    settings = project["tool"]["scikit-build"]["wheel"]
    sources = {*settings["packages"].values(), *settings["force-include"], *project["project"]["license-files"]}
    needed = {source.split("/")[0] for source in sources} | {"pyproject.toml", project["project"]["readme"], "requirements-dask.lock"}
    assert kept == needed
    assert {"**/.env*", "**/*.key", "**/*.pem"} <= set(rules[1:])
