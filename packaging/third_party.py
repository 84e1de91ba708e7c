"""Writes NOTICE and the SBOM of the packages in requirements.lock: names, versions, hashes from the lock, licenses from installed metadata.

``make notice`` runs it. The SBOM is CycloneDX 1.6; the wheel has it below ``.dist-info/sboms/`` (PEP 770). Both files are the same on every
run of the same lock and the same installed packages: they contain no time and no random number.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK, NOTICE, SBOM = ROOT / "requirements.lock", ROOT / "NOTICE", ROOT / "packaging" / "postrun.cdx.json"

# Needed to build postrun, not to run it.
BUILD_TOOLS = {"cmake", "ninja", "pathspec", "scikit-build-core"}
# Packages that no CPython installs: license, homepage.
ELSEWHERE = {"brotlicffi": ("MIT", "https://github.com/python-hyper/brotlicffi")}
# Packages whose metadata has no homepage.
HOMEPAGE_OF = {"fontpkg-inter": "https://github.com/rsms/inter"}
# Name of a license in older metadata -> its SPDX identifier, if there is exactly one.
SPDX = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
HOMEPAGES = ("homepage", "source", "repository", "code", "documentation")

HEAD = """\
postrun
Licensed under the Apache License, Version 2.0 (see LICENSE).

postrun contains no third-party code. Its installation requires the packages below, which pip downloads from their own distributors; the
versions are those of requirements.lock. Each package has its license text in its own distribution, also for libraries that its binary
wheels contain. `make notice` writes this file.
"""


@dataclass
class Package:
    """One entry of the lock."""

    name: str
    version: str
    marker: str
    hashes: list[str] = field(default_factory=list)

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def locked(text: str) -> list[Package]:
    """The packages of a lock file, in its order."""
    packages: list[Package] = []
    for line in text.splitlines():
        if match := re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)(?: ; (.*?))?\s*\\?$", line):
            packages.append(Package(match[1], match[2], match[3] or ""))
        elif match := re.match(r"\s+--hash=sha256:([0-9a-f]{64})", line):
            packages[-1].hashes.append(match[1])
    return packages


def license_of(about: PackageMetadata | Mapping[str, Any]) -> str:
    """An SPDX expression where the metadata has one, else the name that it has."""
    if expression := about.get("License-Expression"):
        return str(expression)
    short = (about.get("License") or "").strip()
    if short and len(short) < 40 and "\n" not in short:
        return SPDX.get(short, short)
    classifiers = [line for key, line in about.items() if key == "Classifier" and line.startswith("License ::")]
    names = [line.rpartition(" :: ")[2] for line in classifiers]
    return " / ".join(SPDX.get(name, name) for name in names)


def homepage_of(about: PackageMetadata | Mapping[str, Any]) -> str:
    links = {"homepage": about["Home-page"]} if about.get("Home-page") else {}
    for line in (value for key, value in about.items() if key == "Project-URL"):
        label, _, address = line.partition(", ")
        links.setdefault(label.lower(), address)
    return next((links[label] for label in HOMEPAGES if label in links), "")


def facts(name: str) -> tuple[str, str]:
    """License and homepage of an installed package."""
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    try:
        about = metadata(name)
    except PackageNotFoundError:
        sys.exit(f"{name} is not installed. Run `make notice` on Linux with Python 3.11, for which the lock has every package")
    license_name = license_of(about)
    if not license_name:
        sys.exit(f"the metadata of {name} has no license. Add it to ELSEWHERE in {Path(__file__).name}")
    return license_name, homepage_of(about) or HOMEPAGE_OF.get(name, "")


def notice(packages: list[Package]) -> str:
    lines = [HEAD]
    for package in packages:
        license_name, homepage = facts(package.name)
        purpose = "; build only" if package.name in BUILD_TOOLS else ""
        lines.append(f"{package.name} {package.version}\n    License: {license_name}{purpose}\n    {homepage}\n")
    return "\n".join(lines)


def component(package: Package) -> dict[str, Any]:
    license_name, homepage = facts(package.name)
    known = license_name in SPDX.values() or re.fullmatch(r"[A-Za-z0-9.-]+(?: (?:AND|OR|WITH) [A-Za-z0-9.-]+)*", license_name)
    files = {"type": "distribution", "url": package.purl, "hashes": [{"alg": "SHA-256", "content": value} for value in package.hashes]}
    entry: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "scope": "excluded" if package.name in BUILD_TOOLS else "required",
        "licenses": [{"expression": license_name} if known else {"license": {"name": license_name}}],
        "purl": package.purl,
        "externalReferences": [files, *([{"type": "website", "url": homepage}] if homepage else [])],
    }
    if package.marker:
        entry["properties"] = [{"name": "postrun:marker", "value": package.marker}]
    return entry


def sbom(packages: list[Package], version: str) -> str:
    purl = f"pkg:pypi/postrun@{version}"
    about = {"type": "application", "bom-ref": purl, "name": "postrun", "version": version, "purl": purl}
    content = {
        "metadata": {"component": about | {"licenses": [{"expression": "Apache-2.0"}]}},
        "components": [component(package) for package in packages],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return json.dumps(head | content, indent=1) + "\n"


def main() -> None:
    packages = locked(LOCK.read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    NOTICE.write_text(notice(packages))
    SBOM.write_text(sbom(packages, version))


if __name__ == "__main__":
    main()
