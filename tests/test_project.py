"""The files beside the package say what is so: the commands they show are run, versions agree, links lead somewhere."""

import re
import subprocess
import tomllib
from pathlib import Path

import preloaded
import pytest
from patience import PATIENCE
from preloaded import Forked

from dkl.cli.commands import TOPICS, contents
from dkl.cli.commands import page as guide_page
from dkl.reproduce.registry import ITEMS

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *(f"dkl/guide/{topic}.md" for topic in TOPICS)]
"""Pages whose commands and programs are run as they are shown."""
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
    shown = [line for page in PAGES for line in commands(page)]
    assert len(shown) >= 2
    assert steps[: len(shown)] == shown
    for check in steps[len(shown) :]:
        assert check in commands("CONTRIBUTING.md")


def programs(name: str) -> list[tuple[str, str]]:
    """Return (program, output that the page shows below it, or "") of each Python block of a Markdown file."""
    pattern = r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?"
    return re.findall(pattern, read(name), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", PAGES)
def test_python_of_a_page_prints_what_it_shows(tmp_path: Path, name: str) -> None:
    for program, shown in programs(name):
        script = tmp_path / "script.py"
        script.write_text(program, encoding="utf-8")
        run = Forked(preloaded.python, str(script))
        out, err = run.communicate(timeout=PATIENCE)
        assert run.returncode == 0, err
        if shown:
            number = r"\d+\.\d+"
            assert re.sub(number, "#", out) == re.sub(number, "#", shown)
            wanted = [
                float(text) for text in re.findall(number, shown)
            ]  # other processors round otherwise, in the second digit
            assert [float(text) for text in re.findall(number, out)] == pytest.approx(wanted, abs=0.05)


def test_every_page_of_the_guide_is_listed_and_printed() -> None:
    assert {f"{topic}.md" for topic in TOPICS} == {path.name for path in (ROOT / "dkl" / "guide").glob("*.md")}
    for topic in TOPICS:
        assert not re.search(r"\]\(", guide_page(topic))
        assert re.search(rf"^{topic} +\S", contents(), flags=re.MULTILINE)
    assert len(read("README.md").splitlines()) <= 130


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


def test_files_that_contributing_names_are_there() -> None:
    """Of a path the end alone may be named: `kind.py`, `estimators/base`; <learner> and * stand for any name."""
    paths = {str(part) for path in tracked() for part in (path, *path.parents)}
    prose = re.sub(r"^```.*?^```", "", read("CONTRIBUTING.md"), flags=re.MULTILINE | re.DOTALL)
    named = {
        name for name in re.findall(r"`([\w./<>*-]+)`", prose) if "/" in name or re.search(r"\.(py|md|txt)$", name)
    }
    assert len(named) > 80
    for name in sorted(named):
        ending = re.sub(r"<\w+>|\\\*", "[^/]+", re.escape(name.rstrip("/")))
        assert any(re.search(rf"(^|/){ending}$", path) for path in paths), f"no {name}"


def test_a_paper_is_in_five_folders_of_one_name() -> None:
    """By the guide's table of the papers; its order is that of CONTRIBUTING.md's list and of `dkl reproduce`."""
    rows = re.findall(r"^\| (\d) \| ([\w-]+) \|.*\| `(\w+)` \|$", read("dkl/guide/papers.md"), flags=re.MULTILINE)
    families = {path.parent.name for path in (ROOT / "dkl" / "problems").glob("*/__init__.py")}
    assert {folder for _, _, folder in rows} == families
    listed = re.findall(r"^(\d)\. `(\w+)` \(([\w-]+), ", read("CONTRIBUTING.md"), flags=re.MULTILINE)
    assert listed == [(number, folder, short) for number, short, folder in rows]
    assert list(dict.fromkeys(item.paper for item in ITEMS.values())) == [short for _, short, _ in rows]
    for _, short, folder in rows:
        for layer in ("problems", "solvers", "estimators", "runs"):
            assert f"({short}" in read(f"dkl/{layer}/{folder}/__init__.py").splitlines()[0]
        assert len(list((ROOT / "tests").glob(f"*/{folder}"))) >= 3


def test_no_file_names_a_folder_of_one_machine() -> None:
    machine = re.compile(r"(?<![\w.}])/(?:work|home|root|tmp|Users|opt)/")
    for path in tracked():
        if path.parts[0] != "tests":
            found = machine.search((ROOT / path).read_text(encoding="utf-8", errors="replace"))
            assert not found, f"{path} names {found[0]}"
