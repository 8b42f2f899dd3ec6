"""Lookup, order and errors of the configuration."""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from pathlib import Path

import pytest

from fleetchat.config import Config, PeerSettings, load
from fleetchat.config.program_state import remember_setting
from fleetchat.config.settings import TABLES
from fleetchat.errors import ConfigError, ExitCode
from fleetchat.ids import Address
from fleetchat.paths import shipped

PEERS = '[[fleet.peers]]\naddress = "127.0.0.1:7077"\n[[fleet.peers]]\naddress = "local"\nname = "here"\n'


class Folders:
    """The places where a configuration is looked for."""

    def __init__(self, root: Path) -> None:
        self.here = root / "here" / "fleet.toml"
        self.own = root / "config" / "fleet.toml"
        self.state = root / "state"
        for folder in (self.here.parent, self.own.parent, self.state):
            folder.mkdir()

    def load(self, text: str, **overrides: object) -> Config:
        """Load with this text as the user's file."""
        self.own.write_text(text, encoding="utf-8")
        return load(None, {name.replace("__", "."): value for name, value in overrides.items()})


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    folders = Folders(tmp_path)
    monkeypatch.chdir(folders.here.parent)
    monkeypatch.setenv("FLEETCHAT_CONFIG_DIR", str(folders.own.parent))
    monkeypatch.setenv("FLEETCHAT_STATE_DIR", str(folders.state))
    return folders


def refusal(folders: Folders, text: str) -> str:
    """The message with which a user's file is refused, without the file's name in front."""
    with pytest.raises(ConfigError) as refused:
        folders.load(text)
    assert refused.value.exit_code is ExitCode.WRONG_INPUT
    assert "\n" not in refused.value.message
    return refused.value.message.removeprefix(str(folders.own))


def test_the_shipped_values(folders: Folders) -> None:
    config = load()
    assert config.file == shipped("fleet.toml")
    assert (config.model.recipe, config.model.context) == ("smollm2-135m", None)
    assert (config.fleet.mode, config.fleet.stages, config.fleet.peers) == ("embedded", 2, ())
    assert (config.fleet.kv, config.fleet.precision, config.fleet.tls) == ("auto", "fast", False)
    assert config.speculation.drafter is None
    assert config.sampling.temperature is None
    assert config.sampling.stop == ()


def test_the_shipped_file_documents_every_key() -> None:
    text = shipped("fleet.toml").read_text(encoding="utf-8")
    document = tomllib.loads(re.sub(r"(?m)^# (?=\w+ = |\[\[)", "", text))
    documented = {(table, key) for table, content in document.items() for key in content}
    known = {(table, field.name) for table in TABLES for field in dataclasses.fields(TABLES[table])}
    assert documented == known
    (peer,) = document["fleet"]["peers"]
    assert set(peer) == {field.name for field in dataclasses.fields(PeerSettings)}


def test_the_examples_in_the_shipped_file_are_valid(folders: Folders) -> None:
    text = shipped("fleet.toml").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^# layers.*$", "", text)  # written down for later, refused today
    config = folders.load(re.sub(r"(?m)^# (?=\w+ = |\[\[)", "", text))
    assert config.fleet.peers[0].name == "left"
    assert config.sampling.temperature == 0.7


def test_lookup_takes_the_first_file(folders: Folders, tmp_path: Path) -> None:
    named = tmp_path / "named.toml"
    named.write_text("[sampling]\nseed = 1\n", encoding="utf-8")
    folders.here.write_text("[sampling]\nseed = 2\n", encoding="utf-8")
    folders.own.write_text("[sampling]\nseed = 3\nmax_tokens = 3\n", encoding="utf-8")
    first, second = load(named), load()
    assert (first.file, first.sampling.seed) == (named, 1)
    assert (second.file, second.sampling.seed) == (folders.here, 2)
    assert second.sampling.max_tokens == load(named).sampling.max_tokens == 1024
    folders.here.unlink()
    assert (load().file, load().sampling.seed) == (folders.own, 3)


def test_order_of_the_places(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    (folders.state / "settings.toml").write_text(
        '[ui]\ntheme = "state"\nrefresh_hz = 2\n[chat]\nsystem = "state"\n', encoding="utf-8"
    )
    text = '[ui]\ntheme = "file"\n[sampling]\nmax_tokens = 1\ntop_k = 1\nseed = 1\n'
    monkeypatch.setenv("FLEETCHAT_SAMPLING_MAX_TOKENS", "2")
    monkeypatch.setenv("FLEETCHAT_SAMPLING_TOP_K", "2")
    config = folders.load(text, sampling__top_k=3, sampling__seed=None)
    assert config.sampling.top_k == 3  # command line
    assert config.sampling.max_tokens == 2  # environment
    assert config.sampling.seed == 1  # file; None on the command line means not given
    assert config.ui.theme == "file"
    assert config.ui.refresh_hz == 2  # program state
    assert config.ui.panel is True  # shipped


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[sampling]\ntemprature = 1", ": [sampling] has no key 'temprature'; the nearest is 'temperature'"),
        ("[model]\nstages = 2", ": [model] has no key 'stages'; it belongs to [fleet]"),
        ("[sampling]\nzzz = 1", ": [sampling] has no key 'zzz'"),
        ("[samplign]\nseed = 1", ": there is no table [samplign]; the nearest is 'sampling'"),
        ("seed = 1", ": seed stands in no table; every setting belongs to one, as [model]"),
        ("sampling = 1", ": sampling must be a table: [sampling]"),
        ("[sampling]\ntop_p = 0", ": top_p in [sampling] must be a number above 0 and at most 1, not 0"),
        (
            "[sampling]\ntop_p = true",
            ": top_p in [sampling] must be a number above 0 and at most 1, not true",
        ),
        (
            "[sampling]\ntemperature = nan",
            ": temperature in [sampling] must be a number from 0 to 100, not nan",
        ),
        (
            "[sampling]\nseed = -1",
            ": seed in [sampling] must be a whole number from 0 to 9223372036854775807, not -1",
        ),
        (
            "[sampling]\nmax_tokens = 1.5",
            ": max_tokens in [sampling] must be a whole number from 1 upwards, not 1.5",
        ),
        (
            '[sampling]\nstop = [""]',
            ": stop in [sampling] must be a list of texts that are not empty, not ['']",
        ),
        ("[model]\nrecipe = 1", ": recipe in [model] must be a text in quotes, not 1"),
        ("[ui]\npanel = 1", ": panel in [ui] must be true or false, not 1"),
        ('[fleet]\nprecision = "bf16"', ': precision in [fleet] must be "fast" or "exact", not \'bf16\''),
        ("[fleet]\nkey_file = 1", ": key_file in [fleet] must be a path in quotes, not 1"),
        (
            "[fleet]\ntls = 1",
            ": tls in [fleet] must be true or false, not 1",
        ),
        (
            '[speculation]\ndrafter = "ngrams"',
            ': drafter in [speculation] must be "none" or "ngram" or "model" or "ngram+model", '
            "not 'ngrams'",
        ),
        (
            "[speculation]\ndepth = 65",
            ': depth in [speculation] must be "adaptive" or a whole number from 1 to 64, not 65',
        ),
        ("[fleet]\npeers = 1", ": peers in [fleet] must be written as [[fleet.peers]] tables"),
        (
            '[fleet]\nmode = "peers"',
            ': mode in [fleet]: the mode is "peers", but no peer is named',
        ),
        (
            '[[fleet.peers]]\naddress = "a:1"\nspare = true',
            ': peers in [fleet]: the mode is "peers", but only spares are named',
        ),
        ("[sampling]\nseed = 1\nseed = 2", ", line 3: Cannot overwrite a value"),
        ("[sampling]\nseed =", ", line 2: Invalid value"),
        ("[sampling", ", line 1: Expected ']' at the end of a table declaration"),
    ],
)
def test_a_wrong_file_is_named_with_the_place(folders: Folders, text: str, message: str) -> None:
    assert refusal(folders, text) == message


def test_a_long_value_is_shortened(folders: Folders) -> None:
    text = refusal(folders, f'[fleet]\nprecision = "{"x" * 500}"')
    assert text.endswith("xxx...")
    assert len(text) < 150


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[chat]\nsystem = '\xff'", r", line 2: the text is not UTF-8"),
        (b"x = " + b"[" * 50_000, r": .+"),
        (b"#" * (1 << 20) + b"#", r" is larger than 1 MiB"),
    ],
)
def test_content_that_is_no_configuration(folders: Folders, content: bytes, message: str) -> None:
    folders.own.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(str(folders.own)) + message):
        load()


def test_a_byte_order_mark_is_no_error(folders: Folders) -> None:
    folders.own.write_bytes(b"\xef\xbb\xbf[sampling]\r\nseed = 5\r\n")
    assert load().sampling.seed == 5


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)


def test_environment_values_are_read_by_kind(folders: Folders) -> None:
    environment = {
        "FLEETCHAT_SAMPLING_TEMPERATURE": "0.5",
        "FLEETCHAT_SAMPLING_STOP": '["a", "b"]',
        "FLEETCHAT_CHAT_SYSTEM": "1",
        "FLEETCHAT_UI_PANEL": "false",
        "FLEETCHAT_SPECULATION_DEPTH": "adaptive",
        "FLEETCHAT_FLEET_KEY_FILE": "my.key",
        "FLEETCHAT_CACHE_DIR": "x",
        "FLEETCHAT_SOMETHING_ELSE": "x",
    }
    config = load(environment=environment)
    assert config.sampling.temperature == 0.5
    assert config.sampling.stop == ("a", "b")
    assert config.chat.system == "1"
    assert config.ui.panel is False
    assert config.speculation.depth == "adaptive"
    assert config.fleet.key_file == folders.here.parent / "my.key"
    assert load(environment={"FLEETCHAT_SAMPLING_STOP": "a b"}).sampling.stop == ("a b",)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("SAMPLING_TEMPRATURE", "1", "names no setting; the nearest is 'FLEETCHAT_SAMPLING_TEMPERATURE'"),
        ("SAMPLNG_TEMPERATURE", "1", "names no setting; the nearest is 'FLEETCHAT_SAMPLING_TEMPERATURE'"),
        ("SAMPLING_SEED", "x", "must be a whole number from 0 to 9223372036854775807, not 'x'"),
        ("FLEET_PEERS", "[]", "can only be set in a file"),
        ("FLEET_STAGES", "0", "must be a whole number from 1 to 256, not 0"),
    ],
)
def test_a_wrong_variable_is_named(folders: Folders, name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(environment={f"FLEETCHAT_{name}": value})
    assert refused.value.message == f"environment variable FLEETCHAT_{name} {message}"


@pytest.mark.parametrize(
    ("name", "option"),
    [("sampling.top_p", "--top-p"), ("speculation.depth", "--draft-depth")],
)
def test_a_wrong_option_is_named(folders: Folders, name: str, option: str) -> None:
    with pytest.raises(ConfigError, match=f"^command line: {option} must be"):
        load(None, {name: 70.5})


def test_paths_are_relative_to_the_file(folders: Folders, tmp_path: Path) -> None:
    config = folders.load('[fleet]\nkey_file = "keys/a.key"\n[speculation]\ndraft_model = "~/draft"\n')
    assert config.fleet.key_file == folders.own.parent / "keys" / "a.key"
    assert config.speculation.draft_model == Path.home() / "draft"
    override = load(None, {"fleet.key_file": Path("b.key")})
    assert override.fleet.key_file == folders.here.parent / "b.key"


def test_peers(folders: Folders) -> None:
    text = (
        '[[fleet.peers]]\naddress = "[::1]:7077"\nname = "left"\n'
        '[[fleet.peers]]\naddress = "local"\ndevice = "CPU"\n'
    )
    config = folders.load(text)
    assert config.fleet.peers == (
        PeerSettings(Address("::1", 7077), name="left"),
        PeerSettings(None, device="CPU"),
    )
    assert (config.fleet.mode, config.fleet.stages) == ("peers", 2)


def test_devices(folders: Folders) -> None:
    local = '[[fleet.peers]]\naddress = "local"\ndevice = "{}"\n'
    assert [folders.load(local.format(name)).fleet.peers[0].device for name in ("GPU", "GPU.1", "NPU")] == [
        "GPU",
        "GPU.1",
        "NPU",
    ]
    assert 'must be "CPU", "GPU" or "NPU"' in refusal(folders, local.format("TPU"))
    said = refusal(folders, '[[fleet.peers]]\naddress = "a:1"\ndevice = "GPU"\n')
    assert "start it with `fleetchat peer --device GPU`" in said


def test_a_set_mode_wins_over_named_peers(folders: Folders) -> None:
    assert folders.load(f'[fleet]\nmode = "embedded"\n{PEERS}').fleet.mode == "embedded"
    assert folders.load(PEERS, fleet__mode="embedded").fleet.mode == "embedded"


def test_peers_in_the_program_state_are_used(folders: Folders) -> None:
    (folders.state / "settings.toml").write_text(PEERS, encoding="utf-8")
    assert load().fleet.mode == "peers"
    assert folders.load('[fleet]\nmode = "embedded"\n').fleet.mode == "embedded"


def test_the_number_of_peers_is_the_number_of_stages(folders: Folders) -> None:
    assert folders.load(f"[fleet]\nstages = 3\n{PEERS}", fleet__stages=2).fleet.stages == 2
    with pytest.raises(ConfigError, match="command line: 3 stages are asked for, but 2 peers are named"):
        folders.load(PEERS, fleet__stages=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"', "(the 2nd) cannot be used: it has no address"),
        (
            'address = "x"',
            "(the 2nd) cannot be used: 'x' is not an address of the form HOST:PORT",
        ),
        ('adress = "x"', "(the 2nd) has an unknown key 'adress'; the nearest is 'address'"),
        ('address = "local"\nspare = 1', "(the 2nd): its spare must be true or false, not 1"),
        (
            'address = "local"\nlayers = "5-3"',
            "(the 2nd) cannot be used: layers are written as 0-17, not '5-3'",
        ),
        (
            'address = "a:1"\nlayers = "0-17"\nspare = true',
            "(the 2nd) cannot be used: a spare takes the layers of the peer that it stands in for",
        ),
        (
            'address = "local"\nspare = true',
            "(the 2nd) cannot be used: a local stage needs no spare: it is started again by itself",
        ),
        (
            'address = "local"\nname = "\\u001b[2J"',
            "(the 2nd) cannot be used: a name has at most 64 printable characters",
        ),
    ],
)
def test_a_wrong_peer_is_named(folders: Folders, text: str, message: str) -> None:
    file = f'[[fleet.peers]]\naddress = "local"\n[[fleet.peers]]\n{text}\n'
    assert refusal(folders, file) == f": peers in [fleet] {message}"


def test_a_strange_folder_s_peers_are_not_used_unasked(folders: Folders) -> None:
    folders.here.write_text(PEERS, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load()
    assert refused.value.message == f"{folders.here} names peers and was not confirmed yet"
    assert refused.value.hint == f"to use it, say so: --fleet .{os.sep}fleet.toml"
    assert load(Path("fleet.toml")).fleet.mode == "peers"


def test_a_confirmed_file_is_remembered_by_path_and_content(folders: Folders) -> None:
    asked: list[tuple[Path, tuple[str, ...]]] = []

    def confirm(file: Path, peers: tuple[str, ...]) -> bool:
        asked.append((file, peers))
        return True

    folders.here.write_text(PEERS, encoding="utf-8")
    assert load(confirm=confirm).file == folders.here
    assert asked == [(folders.here, ("127.0.0.1:7077", "here (local)"))]
    assert load().file == folders.here

    folders.here.write_text(PEERS.replace("7077", "7078"), encoding="utf-8")
    with pytest.raises(ConfigError, match="not confirmed"):
        load()
    assert load(confirm=confirm).fleet.peers[0].address == Address("127.0.0.1", 7078)
    record = folders.state / "confirmed.toml"
    assert len(tomllib.loads(record.read_text(encoding="utf-8"))["fleet_file"]) == 1
    assert list(folders.state.iterdir()) == [record]
    if os.name == "posix":
        assert record.stat().st_mode & 0o777 == 0o600


def test_a_declined_file_is_passed_over(folders: Folders) -> None:
    folders.here.write_text(PEERS, encoding="utf-8")
    folders.own.write_text("[sampling]\nseed = 3\n", encoding="utf-8")
    assert load(confirm=lambda file, peers: False).sampling.seed == 3
    with pytest.raises(ConfigError, match="not confirmed"):
        load()


def test_a_damaged_record_asks_again(folders: Folders) -> None:
    folders.here.write_text(PEERS, encoding="utf-8")
    (folders.state / "confirmed.toml").write_text("fleet_file = 1", encoding="utf-8")
    with pytest.raises(ConfigError, match="not confirmed"):
        load()
    assert load(confirm=lambda file, peers: True).file == folders.here
    assert load().file == folders.here


def test_a_state_folder_that_cannot_be_written_does_not_stop_the_chat(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.here.write_text(PEERS, encoding="utf-8")
    monkeypatch.setenv("FLEETCHAT_STATE_DIR", str(folders.here / "not a folder"))
    assert load(confirm=lambda file, peers: True).file == folders.here


def test_the_user_s_own_folder_needs_no_confirmation(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.own.write_text(PEERS, encoding="utf-8")
    assert load().fleet.mode == "peers"
    monkeypatch.chdir(folders.own.parent)
    assert load().fleet.mode == "peers"


def test_the_mode_of_the_environment_is_named(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCHAT_FLEET_MODE", "peers")
    assert refusal(folders, "") == (
        'environment variable FLEETCHAT_FLEET_MODE: the mode is "peers", but no peer is named'
    )


def test_where_the_recipe_is_named_is_known(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load().recipe_place == "recipe in [model]"
    assert folders.load('[model]\nrecipe = "mine"\n').recipe_place == f"{folders.own}: recipe in [model]"
    monkeypatch.setenv("FLEETCHAT_MODEL_RECIPE", "other")
    assert load().recipe_place == "environment variable FLEETCHAT_MODEL_RECIPE"
    assert load(None, {"model.recipe": "third"}).recipe_place == "command line: --recipe"


def test_a_spare_is_no_stage(folders: Folders) -> None:
    file = f'{PEERS}[[fleet.peers]]\naddress = "10.0.0.7:7077"\nspare = true\n'
    config = folders.load(file)
    assert [peer.spare for peer in config.fleet.peers] == [False, False, True]
    assert config.fleet.stages == 2


def test_keys_of_commands_are_a_table_of_texts(folders: Folders) -> None:
    assert load().ui.keys == {}
    assert folders.load('[ui.keys]\n"tab.new" = "ctrl+t"\n').ui.keys == {"tab.new": "ctrl+t"}
    with pytest.raises(ConfigError, match=r"keys in .ui. must be a table of texts in quotes"):
        folders.load("[ui]\nkeys = { a = 1 }\n")


def test_what_the_program_remembers_is_weaker_than_the_file(folders: Folders) -> None:
    remember_setting("ui", "theme", "mine")
    remember_setting("ui", "refresh_hz", 2)
    assert (load().ui.theme, load().ui.refresh_hz) == ("mine", 2)
    assert folders.load('[ui]\ntheme = "yours"\n').ui.theme == "yours"
