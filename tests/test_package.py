"""Versions, tags, the Dockerfile and GitHub's workflows are consistent."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import ringside
from ringside.errors import OPTIONAL

TOP = Path(__file__).parents[1]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CHANGELOG = (TOP / "CHANGELOG.md").read_text(encoding="utf-8")
WORKFLOWS = sorted((TOP / ".github" / "workflows").glob("*.yml"))
INSTALL = re.compile(r"pip install (.*?)'(\.\[[\w,]+\])'", re.DOTALL)


def words_of(command: str) -> list[str]:
    return shlex.split(command.replace("\\\n", " "))


def test_every_file_names_the_same_release():
    version, date = re.search(r"^## \[(\d[\w.]*)\] - (\S+)$", CHANGELOG, re.MULTILINE).groups()
    citation = yaml.safe_load((TOP / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], str(citation["date-released"])) == (version, date)
    assert PROJECT["version"] == ringside.__version__ == version
    assert citation["license"] == PROJECT["license"]


def test_nothing_tells_people_to_fetch_somebody_elses_package():
    """On PyPI the name ringside alone is taken."""
    assert PROJECT["name"] == "ringside-sim"
    told = re.compile(r"\bringside\[\w|pip install '?ringside\b(?!-sim)")
    rooms = ("topologies", "sim", "real", "validation", "ringside", "docs", "examples", "benchmarks")
    files = [file for room in rooms for ending in ("py", "md") for file in (TOP / room).rglob(f"*.{ending}")]
    texts = {file: file.read_text(encoding="utf-8") for file in (*files, *TOP.glob("*.md"))}
    assert len(texts) > 500
    assert [str(file) for file, text in texts.items() if told.search(text)] == []
    extras = set(PROJECT["optional-dependencies"])
    named = {
        extra
        for text in texts.values()
        for extra in re.findall(r"'ringside-sim\[(\w+)\]'|'\.\[(\w+)\]'", text)
    }
    assert {one or other for one, other in named} <= extras
    assert set(OPTIONAL.values()) <= extras


def tagged(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, TOP / ".ci" / "tag", *words], cwd=folder, capture_output=True, text=True, check=False
    )


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def released(tmp_path, monkeypatch):
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "somebody@example.org")
    news = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-01-02\n\n### Added\n\n- A thing.\n\n"
    (tmp_path / "CHANGELOG.md").write_text(f"{news}## [1.1.0] - 2026-01-01\n\n- Old.\n", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n', encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "All of it")
    return tmp_path


def test_a_tag_is_the_newest_release_with_its_news(released):
    done = tagged(released)
    assert (done.returncode, done.stdout) == (0, "tagged v1.2.0; git push origin v1.2.0 releases it\n")
    told = git(released, "tag", "--list", "--format=%(contents)").strip()
    assert told == "Ringside 1.2.0\n\n### Added\n\n- A thing."
    again = tagged(released)
    assert (again.returncode, again.stderr) == (
        1, "the tag v1.2.0 is there already; a new release is a new version\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("pyproject.toml", "1.2.0", "1.3.0", "pyproject.toml has version 1.3.0, the newest release"),
        ("CHANGELOG.md", "## [1.", "## 1.", "CHANGELOG.md has no release"),
        ("CHANGELOG.md", "A thing", "Another thing", "something is not committed"),
    ],
)
def test_a_tag_that_would_not_be_true_is_refused(released, file, old, new, complaint):
    path = released / file
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    done = tagged(released)
    assert done.returncode == 1
    assert complaint in done.stderr
    assert git(released, "tag", "--list") == ""


def test_a_tag_is_checked_without_one_being_made(released):
    assert tagged(released, "--check", "v1.2.0").returncode == 0
    assert "v1.1.0 is not v1.2.0" in tagged(released, "--check", "v1.1.0").stderr
    assert git(released, "tag", "--list") == ""


def test_this_changelog_can_be_tagged():
    assert tagged(TOP, "--check", f"v{PROJECT['version']}").stderr == ""


def test_the_image_is_set_up_as_the_readme_says_and_runs_its_demo():
    readme = (TOP / "README.md").read_text(encoding="utf-8")
    told = re.search(r"<!-- demo -->\n```sh\n(.*?)```", readme, re.DOTALL)[1]
    file = (TOP / "Dockerfile").read_text(encoding="utf-8")
    instructions = re.findall(r"^([A-Z]+) ((?:.*\\\n)*.*)$", file, re.MULTILINE)
    assert {"FROM", "COPY", "RUN", "USER", "ENTRYPOINT", "CMD"} <= {name for name, _ in instructions}
    (install,) = (text for name, text in instructions if name == "RUN" and "pip install" in text)
    (options, wanted), (options_told, wanted_told) = (
        INSTALL.search(text).groups() for text in (install, told)
    )
    assert wanted == wanted_told
    assert words_of(options_told)[:3] == ["-q", "-c", "constraints.txt"]
    assert " ".join(words_of(options)).endswith("-c constraints.txt")
    run = [yaml.safe_load(text) for name, text in instructions if name in ("ENTRYPOINT", "CMD")]
    assert [[Path(word).name for word in words] for words in run] == [["ringside"], ["demo"]]
    assert words_of(told)[-2:] == [".venv/bin/ringside", "demo"]
    assert [text for name, text in instructions if name == "USER"] == ["ringside"]


def test_an_image_is_given_what_the_wheel_is_made_of():
    allowed = re.findall(r"^!(\S+)$", (TOP / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    assert not [name for name in allowed if not (TOP / name).exists()]
    hatch = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    linked = {link.resolve().name for link in (TOP / "ringside").iterdir() if link.is_symlink()}
    assert linked == {"real", "sim", "topologies", "validation"}
    needed = {*hatch["targets"]["wheel"]["packages"], *linked, PROJECT["readme"], *PROJECT["license-files"]}
    assert set(allowed) == needed | {"pyproject.toml", "constraints.txt"}


def test_there_are_workflows():
    assert [file.stem for file in WORKFLOWS] == ["ci", "docs", "release"]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
class TestWorkflow:
    def test_it_may_do_the_least_and_every_action_is_one_commit(self, file):
        text = file.read_text(encoding="utf-8")
        flow = yaml.safe_load(text)
        assert flow["permissions"] == {"contents": "read"}
        assert {*flow[True]} <= {"push", "pull_request"}  # YAML 1.1 reads "on" as true
        actions = re.findall(r"uses: (.*)", text)
        assert actions
        for action in actions:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)
        for job in flow["jobs"].values():
            writes = {name for name, right in job.get("permissions", {}).items() if right == "write"}
            assert writes <= {"pages", "id-token"}
            assert not writes or not [step for step in job["steps"] if "run" in step]

    def test_every_command_of_it_exists(self, file):
        steps = [
            step
            for job in yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].values()
            for step in job["steps"]
            if "run" in step
        ]
        for step in steps:
            for command in step["run"].split("&&"):
                program, *words = words_of(command)
                if program.startswith(".venv/bin/"):
                    assert Path(sys.executable).with_name(Path(program).name).exists(), command
                elif program.startswith(".ci/"):
                    assert os.access(TOP / program, os.X_OK), command
                elif program.startswith("python"):
                    assert words[0] == "-m"
                    assert words[1] == "pip" or find_spec(words[1]), command
                else:
                    assert program == "apt-get" or shutil.which(program), command
                for extra in re.findall(r"\.\[([\w,]+)\]", command):
                    assert set(extra.split(",")) <= set(PROJECT["optional-dependencies"])
