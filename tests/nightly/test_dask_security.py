"""A Dask cluster that we start admits nobody else, and a cluster with its own certificates can be used."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import pool_tasks as tasks
import pytest
from postrun.errors import UsageError
from postrun.nightly import engines

pytestmark = pytest.mark.slow

distributed: Any = pytest.importorskip("distributed", reason="Dask is not installed (pip install 'postrun[dask]')")
pytest.importorskip("cryptography", reason="cryptography is not installed (pip install 'postrun[dask]')")
psutil: Any = pytest.importorskip("psutil", reason="psutil is not installed, which comes with Dask")


# Clients that fail leave threads behind: each in a process of its own.
STRANGER = """
import sys
import distributed
for place in sys.argv[1:]:
    for address, security in ((place.replace("tls:", "tcp:"), None), (place, distributed.Security.temporary())):
        try:
            distributed.Client(address, security=security, timeout=1, set_as_default=False)
        except Exception:
            print("refused")
        else:
            print("let in")
"""
USER = """
import sys
from postrun.nightly import engines
engines._CONNECT_S = 2
try:
    with engines.executor("dask:" + sys.argv[1]):
        print("let in")
except Exception as error:
    print(type(error).__name__, error)
"""
CLUSTER = """
import distributed
import pool_tasks as tasks
from postrun.nightly import engines
if __name__ == "__main__":
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, host="127.0.0.1", protocol="tls://",
    ) as cluster:
        assert cluster.scheduler_address.startswith("tls://")
        with engines.executor("dask:" + cluster.scheduler_address) as executor:
            print(executor.submit(tasks.add, 1, 2).result(60))
"""


def called(code: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(tasks.__file__).parent), **variables}
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *words], capture_output=True, text=True, check=False, env=environment, timeout=120
    )


@pytest.fixture(scope="module")
def importable() -> Iterator[None]:
    """Workers can import the helper."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(tasks.__file__).parent)
    yield
    os.environ.pop("PYTHONPATH")
    if before is not None:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="module")
def ours(importable: None) -> Iterator[Executor]:
    with engines.executor("dask", workers=1) as executor:
        yield executor


def test_our_cluster_listens_on_loopback_alone(ours: Executor) -> None:
    assert ours.submit(tasks.add, 1).result(60) == 1
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = {one.laddr.ip for process in processes for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}


def test_nobody_else_can_connect_to_our_cluster(ours: Any) -> None:
    address = ours._cluster.scheduler_address
    workers = list(ours._client.scheduler_info()["workers"])
    assert all(place.startswith("tls://127.0.0.1:") for place in (address, *workers))
    done = called(STRANGER, address, *workers)
    assert done.stdout.split() == ["refused"] * 4
    assert ours.submit(tasks.add, 1).result(60) == 1


def test_without_certificates_the_settings_are_named(ours: Any) -> None:
    done = called(USER, ours._cluster.scheduler_address)
    assert "DASK_DISTRIBUTED__COMM__TLS__CA_FILE" in done.stdout
    assert "InputError" in done.stdout


def test_our_cluster_serves_no_pages(ours: Any) -> None:
    ports = [
        ours._cluster.scheduler.http_server.port,
        *(one["services"]["dashboard"] for one in ours._client.scheduler_info()["workers"].values()),
    ]
    for port in ports:
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)


def test_files_of_our_cluster_are_in_a_folder_of_our_own(ours: Any) -> None:
    folder = Path(ours._folder)
    assert folder.parent == Path(tempfile.gettempdir())
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "dask-scratch-space").is_dir()


def test_a_cluster_imports_nothing_from_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "multiprocessing.py").write_text("open('ran', 'w').close()\nraise SystemExit\n")
    code = (
        "import pool_tasks as tasks\nfrom postrun.nightly import engines\nif __name__ == '__main__':\n"
        "    with engines.executor('dask', workers=1) as executor:\n        print(executor.submit(tasks.add, 1, 2).result(60))\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment["PYTHONPATH"] = str(Path(tasks.__file__).parent)
    program = tmp_path / "programs" / "night.py"  # as a console script, its own folder comes first, not the current one
    program.parent.mkdir()
    program.write_text(code)
    done = subprocess.run([sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert not (tmp_path / "ran").exists()
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_without_cryptography_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise ImportError("cryptography")

    monkeypatch.setattr(distributed.Security, "temporary", absent)
    with pytest.raises(UsageError, match=r"cryptography: pip install \"postrun\[dask\]\""), engines.executor("dask"):
        pass


def test_a_scheduler_with_certificates_is_reached_by_the_settings_of_dask(tmp_path: Path) -> None:
    security = distributed.Security.temporary()
    variables = {}
    for name in ("ca_file", "client_cert", "client_key", "scheduler_cert", "scheduler_key", "worker_cert", "worker_key"):
        (tmp_path / name).write_text(getattr(security, f"tls_{name}"))
        setting = name if name == "ca_file" else name.replace("_", "__")
        variables[f"DASK_DISTRIBUTED__COMM__TLS__{setting.upper()}"] = str(tmp_path / name)
    done = called(CLUSTER, **variables)
    assert done.stdout.split() == ["3"], done.stderr
