"""Shell completion, asked of a real bash."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from swapformer.cli import command_lines
from swapformer.paths import conf_dir
from swapformer.tools.completion import script

if shutil.which("bash") is None:
    pytest.skip("there is no bash here", allow_module_level=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the script, and a store that holds one study and one trial."""
    place = tmp_path_factory.mktemp("completion")
    (place / "script").write_text(script("bash", command_lines()))
    for study in ("mine", "04_theirs/width"):
        (place / "elsewhere" / "studies" / study).mkdir(parents=True)
        (place / "elsewhere" / "studies" / study / "manifest.json").touch()
    (place / "runs" / "trials" / "0123456789abcdef").mkdir(parents=True)
    return place


def offered(place: Path, line: str, breaks: str = " \t\n") -> set[str]:
    """What bash offers behind `line`; `breaks` are the characters at which it cuts words."""
    code = "source ./script; COMP_WORDBREAKS=$1; COMP_LINE=$2; COMP_POINT=${#2}; _swapformer; echo ${COMPREPLY[*]}"
    done = subprocess.run(
        ["bash", "-c", code, "bash", breaks, line], cwd=place, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_every_verb_and_its_options_are_offered(place: Path) -> None:
    assert {"train", "study", "trials", "status", "completion"} <= offered(place, "swapformer ")
    assert offered(place, "swapformer sta") == {"status"}
    assert {"--publish", "--slots", "--json"} <= offered(place, "swapformer study 04 --")
    assert {"--measure", "--again", "--force"} <= offered(place, "swapformer cost 04 --")
    assert {"--whole", "--arm"} <= offered(place, "swapformer trials prune --")
    assert offered(place, "swapformer cost --ro") == {"--rounds"}
    assert offered(place, "swapformer trials --status kil") == {"killed"}


def test_groups_offer_their_options_and_keys_are_known(place: Path) -> None:
    options = {path.stem for path in (conf_dir() / "model" / "position").glob("*.yaml")}
    assert offered(place, "swapformer train model/position=") == {f"model/position={name}" for name in options}
    assert offered(place, "swapformer train task=copy model/pos") == {"model/position="}
    assert "budget.steps=" in offered(place, "swapformer study 04 budget.")
    assert {"04_head_count", "04_head_count/width"} <= offered(place, "swapformer study 04")
    assert offered(place, "swapformer study 04_head_count/wid") == {"04_head_count/width"}


def test_where_bash_cuts_words_at_an_equals_sign_only_what_follows_is_offered(place: Path) -> None:
    assert offered(place, "swapformer train model/position=ali", " =") == {"alibi"}


def test_studies_and_trials_of_the_store_are_looked_up(place: Path) -> None:
    assert "mine" in offered(place, "swapformer status runs_dir=elsewhere ")
    assert offered(place, "swapformer status runs_dir=elsewhere 04") == {"04_theirs/width"}
    assert "mine" not in offered(place, "swapformer status ")
    assert "mine" in offered(place, "swapformer report runs_dir=elsewhere mine ")
    assert {"mine", "model.head_dim="} <= offered(place, "swapformer cost runs_dir=elsewhere m")
    assert offered(place, "swapformer trials 01") == {"0123456789abcdef"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("check --slot posi", {"position"}),
        ("completion z", {"zsh"}),
        ("train --de", {"--debug"}),
        ("train +preset=nanogpt_", {"+preset=nanogpt_cpu"}),
        ("train +pres", {"+preset="}),
        ("train hydra/launcher=s", {"hydra/launcher=slurm"}),
        ("train hydra/lau", {"hydra/launcher="}),
        ("trials runs_dir=elsewhere --study mi", {"mine"}),
        ("trials --json co", {"compare"}),
        ("export 0123456789abcdef there --format gp", {"gpt2"}),
        ("list model/pos", {"model/position"}),
    ],
)
def test_what_a_parser_takes_is_offered(place: Path, line: str, expected: set[str]) -> None:
    assert offered(place, f"swapformer {line}") == expected


@pytest.mark.parametrize("line", ["study base.y", "sample 01 --runs-dir ", "cost --lengths "])
def test_where_nothing_of_ours_fits_the_shell_offers_files(place: Path, line: str) -> None:
    assert offered(place, f"swapformer {line}") == set()
    assert "complete -o default -F _swapformer swapformer" in (place / "script").read_text()


def test_every_command_line_is_known_to_the_completion(place: Path) -> None:
    """Each parser's own options stand behind its own words; a list kept by hand would go stale."""
    lines = command_lines()
    assert {"trials prune", "check", "study", "train", "cost", "completion"} <= lines.keys()
    for name in lines:
        assert "--debug" in offered(place, f"swapformer {name} --"), name


def test_zsh_gets_the_same_through_its_bash_layer() -> None:
    lines = command_lines()
    assert script("zsh", lines) == f"autoload -U +X bashcompinit && bashcompinit\n{script('bash', lines)}"
