"""The conda recipe has the dependencies and the version of the project."""

import tomllib
from pathlib import Path

import yaml

TOP = Path(__file__).parents[1]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RECIPE = yaml.safe_load((TOP / "packaging/recipe.yaml").read_text(encoding="utf-8"))


def test_the_recipe_needs_what_the_project_needs():
    run = {
        one.replace("matplotlib-base", "matplotlib").replace(" ", "") for one in RECIPE["requirements"]["run"]
    }
    assert run == {*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"}


def test_the_recipe_is_of_this_version():
    assert RECIPE["context"]["version"] == PROJECT["version"]
    assert RECIPE["package"]["name"] == PROJECT["name"]
    assert RECIPE["about"]["license"] == PROJECT["license"]
