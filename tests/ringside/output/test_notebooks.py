"""The example notebooks run from the first cell to the last, as in Jupyter, without its kernel."""

import ast
import json
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]
NOTEBOOKS = sorted((TOP / "examples/notebooks").glob("*.ipynb"))
FORMS = ("_repr_html_", "_repr_png_")


def run(source, names):
    """Run a cell; return the value of the expression that ends it, if one does."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    return last and eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


def test_there_is_one_for_each_persona():
    assert [one.stem for one in NOTEBOOKS] == [
        "a_slow_ddp_job",
        "lecture",
        "planning_a_fabric",
        "training_70b",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda one: one.stem)
def test_a_notebook_runs(notebook, monkeypatch):
    monkeypatch.chdir(TOP)
    content = json.loads(notebook.read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]
    names = {"__name__": "__main__"}
    shown = [run(cell, names) for cell in cells]
    forms = [getattr(value, form)() for value in shown for form in FORMS if hasattr(value, form)]
    assert forms
    assert all(forms)
