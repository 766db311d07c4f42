"""JSON is valid wherever it is written: there is no NaN and no Infinity in it."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path

import pytest

import netprof
from netprof.views.json_text import finite, json_text

PACKAGE = Path(netprof.__file__).parent


def test_what_json_has_no_number_for_is_null() -> None:
    document = {"a": [1.5, math.inf, (math.nan, -math.inf)], "b": {"c": math.nan, "d": "inf", "e": True, "f": None}}
    plain = {"a": [1.5, None, [None, None]], "b": {"c": None, "d": "inf", "e": True, "f": None}}
    assert finite(document) == plain
    assert json.loads(json_text(finite(document))) == plain


def test_a_number_that_json_does_not_have_is_never_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"a": math.inf})


@pytest.mark.slow
@pytest.mark.parametrize("part", ["", "probes", "analysis"])
def test_every_writer_of_json_is_told_to_write_valid_json(part: str) -> None:
    files = list((PACKAGE / part).resolve().rglob("*.py"))
    wrong = [f"{path}:{call.lineno}" for path in files for call in writers(path) if not is_strict(call)]
    assert files
    assert wrong == []


def writers(path: Path) -> list[ast.Call]:
    tree = ast.parse(path.read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return [call for call in calls if ast.unparse(call.func) in ("json.dump", "json.dumps")]


def is_strict(call: ast.Call) -> bool:
    return any(each.arg == "allow_nan" and ast.unparse(each.value) == "False" for each in call.keywords)
