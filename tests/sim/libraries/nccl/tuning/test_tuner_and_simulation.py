import runpy
from pathlib import Path

ROOT = Path(__file__).parents[5]


def test_the_page_shows_what_the_example_prints():
    example = runpy.run_path(str(ROOT / "examples" / "tuner_and_simulation.py"))
    page = (ROOT / "docs" / "nccl_tuner_and_simulation.md").read_text(encoding="utf-8")
    shown = page.partition("<!-- table -->\n")[2].partition("<!-- /table -->")[0]
    assert shown.splitlines() == list(example["table"]())
