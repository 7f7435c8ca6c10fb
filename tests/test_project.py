"""The files beside the package say what is so: the commands they show are run, versions agree, links lead somewhere."""

import re
import subprocess
import tomllib
from pathlib import Path

import preloaded
import pytest
from patience import PATIENCE
from preloaded import Forked

ROOT = Path(__file__).parents[1]
FOLDERS = {"dkl", "tests", "cluster", "benchmarks"}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    """The fenced blocks of one language in a Markdown file."""
    return re.findall(rf"^```{language}\n(.*?)^```$", read(name), flags=re.MULTILINE | re.DOTALL)


def commands(name: str) -> list[str]:
    """The command lines that a Markdown file shows, in order, without their comments."""
    lines = "".join(blocks(name, "sh")).replace("\\\n", " ").splitlines()
    bare = (" ".join(re.sub(r"(^|\s)#.*", "", line).split()) for line in lines)
    return [line for line in bare if line]


def tracked() -> list[Path]:
    """The files under version control, relative to the root."""
    try:
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [Path(name) for name in names.split("\0") if name and (ROOT / name).is_file()]


def test_ci_runs_the_commands_of_the_readme() -> None:
    steps = re.findall(r'^step "(.*)"$', read(".ci/run"), flags=re.MULTILINE)
    shown = commands("README.md")
    assert len(shown) >= 2
    assert steps[: len(shown)] == shown
    for check in steps[len(shown) :]:
        assert check in commands("CONTRIBUTING.md")


@pytest.mark.exhaustive
def test_python_of_the_readme_runs(tmp_path: Path) -> None:
    programs = blocks("README.md", "python")
    assert programs
    for program in programs:
        script = tmp_path / "script.py"
        script.write_text(program, encoding="utf-8")
        run = Forked(preloaded.python, str(script))
        _, err = run.communicate(timeout=PATIENCE)
        assert run.returncode == 0, err


def test_changelog_has_the_version() -> None:
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert re.search(rf"^## \[{re.escape(version)}\]", read("CHANGELOG.md"), flags=re.MULTILINE)


def test_top_level_folders() -> None:
    assert {path.parts[0] for path in tracked() if len(path.parts) > 1 and path.parts[0][0] != "."} == FOLDERS


def test_links_between_documents_lead_somewhere() -> None:
    for path in tracked():
        if path.suffix == ".md":
            for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", read(str(path))):
                assert (ROOT / path.parent / target).exists(), f"{path} links to {target}"


def test_no_file_names_a_folder_of_one_machine() -> None:
    machine = re.compile(r"(?<![\w.}])/(?:work|home|root|tmp|Users|opt)/")
    for path in tracked():
        if path.parts[0] != "tests":
            found = machine.search((ROOT / path).read_text(encoding="utf-8", errors="replace"))
            assert not found, f"{path} names {found[0]}"
