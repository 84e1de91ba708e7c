"""JUnit XML as CI systems read it."""

from __future__ import annotations

from xml.etree import ElementTree as ET

# The parts that GitLab, Jenkins and GitHub's actions read: element -> (required attributes, optional attributes, elements in it).
READ: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": ({"name", "tests", "failures", "errors"}, {"skipped", "time"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors", "skipped", "time", "timestamp"}, set(), {"properties", "testcase"}),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
    "testcase": ({"classname", "name", "time"}, set(), {"failure", "error", "skipped", "system-out"}),
    "system-out": (set(), set(), set()),
    "failure": ({"message", "type"}, set(), set()),
    "error": ({"message", "type"}, set(), set()),
    "skipped": ({"message"}, set(), set()),
}


def read(data: bytes) -> ET.Element:
    """Parse a file with another parser; check elements and attributes against READ."""
    root = ET.fromstring(data)
    assert root.tag == "testsuites"
    for element in root.iter():
        must, may, below = READ[element.tag]
        assert must <= element.attrib.keys() <= must | may, element.tag
        assert {child.tag for child in element} <= below
    for case in root.iter("testcase"):
        assert len(case) <= 1
    return root
