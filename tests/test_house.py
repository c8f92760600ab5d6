"""The house rules that no linter counts."""

import ast
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

TOP = Path(__file__).parents[1]
PRODUCT = ("topologies", "sim", "real", "validation", "ringside")
FILES = [file for room in (*PRODUCT, "tests", "benchmarks") for file in (TOP / room).rglob("*.py")]
MOST_FILES, MOST_LINES, MOST_BODY = 20, 400, 60


def broken_rules(file):
    """What a file of the product breaks."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    if tree.body and not ast.get_docstring(tree):
        yield "does not begin with why it exists"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.end_lineno - node.body[0].lineno >= MOST_BODY:
            yield f"{node.name} is longer than {MOST_BODY} lines"


def test_files_are_short_and_say_what_they_are():
    assert len(FILES) > 800
    names = {str(file.relative_to(TOP)): file for file in FILES}
    assert {name for name, file in names.items() if file.read_bytes().count(b"\n") > MOST_LINES} == set()
    product = {name: file for name, file in names.items() if name.split("/")[0] in PRODUCT}
    assert {name: broken for name, file in product.items() if (broken := [*broken_rules(file)])} == {}


def test_no_folder_holds_too_many_files():
    counts = Counter(str(file.parent.relative_to(TOP)) for file in FILES)
    assert {folder for folder, count in counts.items() if count > MOST_FILES} == set()


def test_no_two_files_import_each_other():
    graph = grimp.build_graph("ringside")
    imports = {file: graph.find_modules_directly_imported_by(file) for file in graph.modules}
    assert len(imports) > 500
    TopologicalSorter(imports).prepare()


def test_import_contracts():
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint], cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
