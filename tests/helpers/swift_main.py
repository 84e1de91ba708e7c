"""Swift's proxy, account, container and object server in one process on loopback. Run by $POSTRUN_SWIFT/bin/python, not by pytest.

swift_main.py FOLDER PORT: keeps everything in FOLDER, prints one line "ready PORT" once the S3 interface answers on that port (0: a free
one), and ends when its standard input does. Buckets are tempauth's: users test:tester and test:keeper;
test:reader may read nothing.
"""

from __future__ import annotations

import eventlet
import eventlet.patcher

eventlet.patcher.monkey_patch()

import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

import eventlet.wsgi  # noqa: E402

PROXY = """[DEFAULT]
swift_dir = {folder}
[pipeline:main]
pipeline = catch_errors cache listing_formats s3api tempauth bulk slo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
conn_timeout = 10
node_timeout = 60
allow_account_management = true
object_post_as_copy = false
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
error_suppression_limit = 1
[filter:s3api]
use = egg:swift#s3api
s3_acl = false
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
user_test_reader = reading
user_test_keeper = kept-quiet-0d5e1f .admin
[filter:bulk]
use = egg:swift#bulk
[filter:slo]
use = egg:swift#slo
"""
STORAGE = """[DEFAULT]
devices = {folder}/devices
mount_check = false
swift_dir = {folder}
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
disable_fallocate = true
fallocate_reserve = 0
"""


def rings(folder: Path, ports: dict[str, int]) -> None:
    from swift.common.ring import RingBuilder

    for kind, port in ports.items():
        builder = RingBuilder(1, 1, 0)
        builder.add_dev({"id": 0, "region": 1, "zone": 1, "ip": "127.0.0.1", "port": port, "device": "d1", "weight": 1.0})
        builder.rebalance()
        builder.get_ring().save(str(folder / f"{kind}.ring.gz"))


def listed(folder: Path, bucket: str, names: list[str]) -> None:
    """Insert ``names`` into a bucket's listing, as an object server would."""
    from swift.common.ring import Ring
    from swift.common.utils import Timestamp, hash_path, storage_directory
    from swift.container.backend import ContainerBroker

    part = Ring(str(folder), ring_name="container").get_part("AUTH_test", bucket)
    key = hash_path("AUTH_test", bucket)
    broker = ContainerBroker(str(folder / "devices" / "d1" / storage_directory("containers", part, key) / f"{key}.db"))
    common = {"created_at": Timestamp(time.time()).internal, "size": 7, "content_type": "a/b", "etag": "0" * 32, "deleted": 0}
    broker.merge_items([{"name": name, "storage_policy_index": 0, **common} for name in names])


def main() -> None:
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    (folder / "devices" / "d1").mkdir(parents=True)
    (folder / "swift.conf").write_text("[swift-hash]\nswift_hash_path_prefix = a\nswift_hash_path_suffix = b\n", encoding="utf-8")
    os.setxattr(folder, "user.postrun", b"1")  # Swift keeps its metadata in these attributes; fails at once if the disk has none
    from swift.common import utils

    utils.SWIFT_CONF_FILE = str(folder / "swift.conf")
    utils.config.SWIFT_CONF_FILE = utils.SWIFT_CONF_FILE
    utils.validate_hash_conf()
    from swift.common.wsgi import loadapp

    kinds = ("account", "container", "object")
    sockets = {kind: eventlet.listen(("127.0.0.1", 0), backlog=256) for kind in kinds}
    rings(folder, {kind: one.getsockname()[1] for kind, one in sockets.items()})
    sockets["proxy"] = eventlet.listen(("127.0.0.1", port), backlog=256)
    log = (folder / "log").open("w", encoding="utf-8")
    for kind, socket in sockets.items():
        text = (PROXY if kind == "proxy" else STORAGE).format(folder=folder, kind=kind)
        (folder / f"{kind}.conf").write_text(text, encoding="utf-8")
        eventlet.spawn(eventlet.wsgi.server, socket, loadapp(str(folder / f"{kind}.conf")), log, custom_pool=eventlet.GreenPool(256))
    print("ready", sockets["proxy"].getsockname()[1], flush=True)
    while line := eventlet.tpool.execute(sys.stdin.readline):
        request = json.loads(line)
        listed(folder, request["bucket"], request["names"])
        print("done", flush=True)


if __name__ == "__main__":
    main()
