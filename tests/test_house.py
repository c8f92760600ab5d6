"""The house rules that no linter counts."""

import ast
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

TOP = Path(__file__).parents[1]
PRODUCT = ("topologies", "sim", "real", "validation", "ringside")
FILES = [file for room in (*PRODUCT, "tests", "benchmarks") for file in (TOP / room).rglob("*.py")]
MOST_FILES, MOST_LINES, MOST_BODY = 20, 400, 60


def broken_rules(file):
    """Return the rules that a file of the product breaks."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    if tree.body and not ast.get_docstring(tree):
        yield "does not begin with why it exists"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.end_lineno - node.body[0].lineno >= MOST_BODY:
            yield f"{node.name} is longer than {MOST_BODY} lines"


def test_files_are_short_and_say_what_they_are():
    assert len(FILES) > 700
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


@cache
def trees():
    """Return the product's syntax trees by file."""
    return {
        file: ast.parse(file.read_text(encoding="utf-8"))
        for file in FILES
        if file.relative_to(TOP).parts[0] in PRODUCT
    }


def defines(body, names):
    """Return whether a body of statements defines the first name, and that name's body the next one."""
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        known = [getattr(node, "name", None), *(getattr(target, "id", None) for target in targets)]
        if names[0] in known:
            return len(names) == 1 or defines(node.body, names[1:])
    return False


def test_every_term_of_the_glossary_stands_in_the_code():
    _, glossary = (TOP / "docs/design.md").read_text(encoding="utf-8").split("## Glossary")
    terms = [line.strip("| ").split(" | ") for line in glossary.splitlines() if "`" in line and "| " in line]
    assert len(terms) > 45
    assert len({term for term, *_ in terms}) == len(terms)
    for term, *_, code in terms:
        parts = code.strip("`").split(".")
        files = [(TOP.joinpath(*parts[:end]), parts[end:]) for end in range(1, len(parts))]
        places = [
            (one, names) for path, names in files for one in (path.with_suffix(".py"), path / "__init__.py")
        ]
        assert any(one in trees() and defines(trees()[one].body, names) for one, names in places), (
            term,
            code,
        )


def test_no_two_classes_share_a_name():
    classes = Counter(
        node.name
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in classes.items() if count > 1} == set()


FORBIDDEN = {
    "laid_out", "trained", "asking", "telling", "told", "asked", "words", "pools", "carry", "carriers",
    "found",
}  # fmt: skip
"""Identifiers that do not say what they name; `docs/design.md` has the house's terms."""


def identifiers(tree):
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=new):
                yield new or name


def test_names_say_what_they_name():
    vague = {
        str(file.parent.relative_to(TOP))
        for file, tree in trees().items()
        if FORBIDDEN & {file.stem, *identifiers(tree)}
    }
    assert vague == set()
