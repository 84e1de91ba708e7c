"""Pages of a listing: they are read quickly in the form that servers write, with the result of a parser of XML, which reads all others."""

from __future__ import annotations

import pytest
from postrun.ingest.object_store import listing
from postrun.ingest.object_store.objects import ObjectInfo

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
URL = "<EncodingType>url</EncodingType>"
AWS = (
    "<Contents><Key>runs/a+b%2Fc</Key><LastModified>2026-11-20T06:00:00.125Z</LastModified><ETag>&quot;0f&quot;</ETag>"
    "<ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType><Size>7</Size>"
    "<StorageClass>STANDARD</StorageClass></Contents>"
)
CEPH = (
    "<Contents><Key>runs/x</Key><LastModified>2026-11-20T06:00:00.000Z</LastModified><ETag>&#34;1f-2&#34;</ETag><Size>0</Size>"
    "<StorageClass>STANDARD</StorageClass><Owner><ID>me</ID><DisplayName>Me</DisplayName></Owner></Contents>"
)
INDENTED = (
    "<Contents>\n  <Key>runs/y</Key>\n  <LastModified>2026-11-20T06:00:00+00:00</LastModified>\n"
    "  <ETag>2f</ETag>\n  <Size>1</Size></Contents>\n"
)
T = 1_795_154_400_000_000_000
EXPECTED = [ObjectInfo("a b/c", 7, '"0f"', T + 125_000_000), ObjectInfo("x", 0, '"1f-2"', T), ObjectInfo("y", 1, '"2f"', T)]


@pytest.mark.parametrize("more", [True, False])
def test_what_servers_write(more: bool) -> None:
    truncated = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
    body = f"{HEAD}{URL}{truncated}{AWS}{CEPH}{INDENTED}</ListBucketResult>\n".encode()
    assert listing._quickly(body, "runs/") == (EXPECTED, more)
    assert listing._parsed(body, "runs/") == (EXPECTED, more)


def test_an_empty_page() -> None:
    body = f"{HEAD}<IsTruncated>false</IsTruncated></ListBucketResult>".encode()
    assert listing._quickly(body, "") == listing._parsed(body, "") == ([], False)


@pytest.mark.parametrize(
    "body",
    [
        f"{HEAD}<!-- {AWS} -->{CEPH}</ListBucketResult>",
        f"{HEAD}{CEPH.replace('runs/x', '<![CDATA[runs/x]]>')}</ListBucketResult>",
        f"{HEAD}{CEPH.replace('runs/x', 'runs/&amp;x')}</ListBucketResult>",
        f"{HEAD}{CEPH.replace('<Key>', '<Key type=' + chr(34) + 'x' + chr(34) + '>')}</ListBucketResult>",
        f"{HEAD}<Contents><Size>1</Size><ETag>2f</ETag><LastModified>2026-11-20T06:00:00Z</LastModified><Key>x</Key></Contents></ListBucketResult>",
        f'<a:ListBucketResult xmlns:a="x">{AWS}</a:ListBucketResult>',
        f"{HEAD}{AWS}{CEPH[:40]}",
        f"{HEAD}{AWS}{CEPH[:40]}</ListBucketResult>",
        "<Error><Code>SlowDown</Code></Error>",
        "",
    ],
)
def test_everything_else_is_left_to_the_parser(body: str) -> None:
    assert listing._quickly(body.encode(), "") is None


def test_names_that_are_not_utf_8_are_left_to_the_parser() -> None:
    body = f"{HEAD}{CEPH}</ListBucketResult>".encode().replace(b"runs/x", b"runs/\xff")
    assert listing._quickly(body, "") is None
