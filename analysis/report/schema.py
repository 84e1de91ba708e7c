"""Makes the JSON Schemas of report.json and comparison.json from the dataclasses of the report and of the comparison.

``make docs`` publishes both files; ``python -P -m postrun.analysis.report.schema [comparison]`` prints one.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
import types
import typing
from typing import Any, Final

from .comparison import Comparison
from .details import RuleDetails
from .model import Report

_ROOTS: Final = {"report": Report, "comparison": Comparison}
_SCALARS: Final = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema(of: str = "report") -> dict[str, Any]:
    """Return the schema of "report" or "comparison" (JSON Schema, draft 2020-12).

    Raises TypeError for a field whose type JSON has no word for."""
    definitions: dict[str, Any] = {}
    root = _type(_ROOTS[of], definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{of}.json of postrun",
        "description": "Times and durations are nanoseconds unless the name says otherwise; null means not known, never zero.",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _type(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if kind is Any:
        return {}
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    if dataclasses.is_dataclass(kind):
        name = typing.cast(type, kind).__name__
        if name not in definitions:
            definitions[name] = {}  # known before its fields, which may name it again
            definitions[name] = _object(typing.cast(type, kind), definitions)
        return {"$ref": f"#/$defs/{name}"}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if RuleDetails in arguments:  # docs/report-json.md lists the keys of each rule
            return _type(dict[str, Any], definitions)
        return _union([_type(argument, definitions) for argument in arguments])
    if origin is list or (origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis):
        return {"type": "array", "items": _type(arguments[0], definitions)}
    if origin is tuple:
        items = [_type(argument, definitions) for argument in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": _type(arguments[1], definitions)}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    raise TypeError(f"report.json has no form for {kind}")


def _union(options: list[dict[str, Any]]) -> dict[str, Any]:
    if all(set(option) == {"type"} for option in options):
        return {"type": [option["type"] for option in options]}
    return {"anyOf": options}


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    fields = [field.name for field in dataclasses.fields(kind)]
    properties = {name: _type(hints[name], definitions) for name in fields}
    for field in dataclasses.fields(kind):
        if field.name == "schema_version":
            properties[field.name] = {"const": field.default}
    description = inspect.getdoc(kind) or ""
    described = {} if description.startswith(f"{kind.__name__}(") else {"description": " ".join(description.split())}
    return {"type": "object", **described, "properties": properties, "required": fields, "additionalProperties": False}


def text(of: str = "report") -> str:
    """Return the schema as JSON text."""
    return json.dumps(schema(of), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text(*sys.argv[1:2]))
