"""Each family of models: cut, fused, rolled back on both engines, and chatted with through `fleetchat ask`.

The models are tiny exports with random weights: what they say is noise, and the chain has to say the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from tokenizers import Tokenizer

from fleetchat.chat.conversation import ChatFormat, Conversation
from fleetchat.cli.main import main
from fleetchat.cutter.boundary import find_layers
from fleetchat.cutter.build import build
from fleetchat.cutter.cut import read_whole
from fleetchat.cutter.fusion import fused_attention
from fleetchat.cutter.graph import build_stage
from fleetchat.cutter.manifest import Manifest, StageEntry
from fleetchat.cutter.plan import plan_stage
from fleetchat.cutter.recipe import load
from fleetchat.cutter.store import Store
from fleetchat.cutter.trial import FloatArray, Trial
from fleetchat.cutter.view import view_of
from fleetchat.engine.interface import EngineSlice, StageEngine
from fleetchat.errors import FleetError
from fleetchat.ids import ChainId, Rollback, SessionId, SessionKey
from fleetchat.peer.engines import create_engine
from fleetchat.peer.loading import EngineRequest
from tests.cutter.fixture_models import CORE, compiled, whole_ir
from tests.families.cases import CASES, USER, Case, write_folder

pytestmark = pytest.mark.slow

TOKENS = 20  # of a reply, unless an end comes first
FEWEST = 8  # tokens before the end that is put into each reply
THEN = "And what then"
SAME_MATHEMATICS = 1e-4  # design section 5
RECIPE = 'title = "{0}"\ncontext = 256\n[source]\nkind = "path"\npath = "{0}"\n'
KEY = SessionKey(ChainId("c" * 32), SessionId(1))


@dataclass
class Family:
    """One row, made once for all tests of it: exported folder, build of two stages, what the model says.

    `first` and `second` are the prompts and replies of two turns; the first reply ends by the stop id `end`.
    """

    case: Case
    folder: Path
    store: Store
    whole: ov.CompiledModel
    first: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    second: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    end: int = -1
    recipe: Path = Path()
    manifest: Manifest = field(init=False)


@pytest.fixture(scope="module", autouse=True)
def _plain_pages() -> Iterator[None]:
    """Asking the system for huge pages takes as long as loading one of these models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fleetchat.peer.engines.use_huge_pages", lambda: None)
        yield


def _rows(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """Only these rows of the matrix."""
    return pytest.mark.parametrize("family", list(cases), indirect=True, ids=lambda case: case.name)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    case: Case = request.param
    root = tmp_path_factory.mktemp(case.name)
    family = Family(case, root / case.name, Store(root / "cache" / "shards"), compiled(whole_ir(case.name)))
    family.recipe = root / "family.toml"
    family.recipe.write_text(RECIPE.format(case.name), encoding="utf-8")
    _think_ahead(family, root / "without-end")
    family.manifest = build(load(family.recipe), 2, None, family.store)
    return family


def _think_ahead(family: Family, scratch: Path) -> None:
    """Ask the uncut model for both turns, and export the folder with a stop id that it will draw."""
    case = family.case
    chat = _chat_format(write_folder(case, scratch), case)
    conversation = Conversation(chat, context=256)
    prompt = list(conversation.ask(USER))
    reply = _greedy(family.whole, prompt, TOKENS)
    fresh = [place for place in range(FEWEST, TOKENS) if reply[place] not in reply[:place]]
    place = next((i for i, token in enumerate(reply) if token in case.ids_of(case.ends)), fresh[-1])
    family.end, reply = reply[place], reply[:place]
    family.first = (prompt, reply)
    conversation.answered(chat.tokenizer.decode(reply), tuple(reply))
    again = list(conversation.ask(THEN))
    drawn = _greedy(family.whole, again, TOKENS)
    ends = {family.end, *case.ids_of(case.ends)}
    family.second = (again, drawn[: next((i for i, token in enumerate(drawn) if token in ends), TOKENS)])
    write_folder(case, family.folder, more_ends=(family.end,))


def _chat_format(folder: Path, case: Case) -> ChatFormat:
    return ChatFormat.load(
        folder / "tokenizer.json",
        folder / "chat_template.jinja",
        bos_id=case.ids_of((case.bos,))[0] if case.bos else None,
        stop_ids=case.ids_of(case.stated),
    )


def _greedy(whole: ov.CompiledModel, prompt: Sequence[int], tokens: int) -> list[int]:
    trial, drawn, rows = Trial([whole]), [], list(prompt)
    for _ in range(tokens):
        drawn.append(int(trial.feed(np.array(rows))[-1].argmax()))
        rows = drawn[-1:]
    return drawn


def test_the_template_is_rendered_as_the_family_wants_it(family: Family) -> None:
    case, manifest = family.case, family.manifest
    tokenizer = Tokenizer.from_file(str(family.folder / "tokenizer.json"))
    assert family.first[0] == tokenizer.encode(case.prompt, add_special_tokens=False).ids
    assert set(manifest.stop_ids) == {family.end, *case.ids_of(case.ends)}
    assert manifest.bos_id == (case.ids_of((case.bos,))[0] if case.bos else None)


def test_the_build_is_what_the_family_is(family: Family) -> None:
    case, manifest = family.case, family.manifest
    assert (manifest.layers, manifest.window, manifest.rollback) == (case.layers, case.window, case.rollback)
    assert manifest.self_check.same_graph == 0.0
    assert manifest.self_check.same_mathematics <= SAME_MATHEMATICS
    assert manifest.self_check.rollback_passed == (case.rollback is Rollback.MASK)
    assert sum(entry.attention_layers for entry in manifest.stages) == case.attention
    assert sum(entry.fused_layers for entry in manifest.stages) == case.fused
    assert {"input_ids", "attention_mask", "beam_idx"} <= set(manifest.stages[0].inputs)
    later = {"inputs_embeds", "attention_mask", "beam_idx", "logit_rows", *case.later_inputs}
    assert set(manifest.stages[1].inputs) - later == set()
    assert ("position_ids" in manifest.stages[1].inputs) == ("position_ids" in case.later_inputs)


def test_a_chain_of_three_stages_is_the_uncut_model_bit_for_bit(family: Family) -> None:
    """Two where there are no more; the first stage has one layer, so the last may have several."""
    stages = list(_cut_fine(family.case))
    assert len(stages) == min(3, family.case.layers)
    for got, want in zip(_steps(Trial(stages), family), _steps(Trial([family.whole]), family), strict=True):
        np.testing.assert_array_equal(got, want)
    fused = [fused_attention(stage) for stage in stages]
    assert sum(in_place for _, in_place in fused) == family.case.fused


def _cut_fine(case: Case) -> Iterator[ov.CompiledModel]:
    def read() -> ov.Model:
        return read_whole(CORE, whole_ir(case.name))

    view = view_of(read())
    layers = find_layers(view)
    firsts = range(min(3, layers.count))
    for first in firsts:
        last = first if first < firsts[-1] else layers.count - 1
        yield compiled(build_stage(read, view, layers, plan_stage(view, layers, first, last)))


def _steps(trial: Trial, family: Family) -> list[FloatArray]:
    """The prompt at once, two tokens, a chunk: past the window of those that have one."""
    prompt, reply = family.first
    chunks = (prompt, reply[:1], reply[1:2], reply[2:6])
    return [trial.feed(np.array(chunk)) for chunk in chunks]


@pytest.mark.parametrize("engine", ["masked", "paged"])
@_rows(case for case in CASES if case.pages)
def test_after_a_rollback_all_is_as_if_nothing_had_been_drafted(family: Family, engine: str) -> None:
    """Three wrong drafts a round, rejected each time; the prompt is longer than the window."""
    _roll_back(family, engine)


@_rows(case for case in CASES if not case.pages)
def test_what_has_no_pages_is_served_by_the_masked_engine(family: Family) -> None:
    with pytest.raises(FleetError, match="cannot be run in pages"):
        _engines(family, "paged")
    _roll_back(family, "masked")


def _roll_back(family: Family, engine: str) -> None:
    """Where nothing can be undone, all is as if nothing had been drafted because nothing is."""
    engines = _engines(family, engine)
    prompt, reply = family.first
    assert len(prompt) > family.case.window + 4
    wanted = Trial([family.whole]).feed(np.array([*prompt, *reply]))
    drafts = [(token + 1) % 200 for token in prompt[:3]] if family.case.rollback.can_undo else []
    rows = _feed(engines, 0, prompt, 1)
    assert np.abs(rows - wanted[len(prompt) - 1]).max() <= SAME_MATHEMATICS
    for place, token in enumerate(reply, len(prompt)):
        rows = _feed(engines, place, [token, *drafts], 1 + len(drafts))
        assert np.abs(rows[0] - wanted[place]).max() <= SAME_MATHEMATICS
    dead = [one.cells(KEY).dead for one in engines]
    hides = engine == "masked" and family.case.rollback is Rollback.MASK
    assert dead == [len(drafts) * (len(reply) - 1) * hides] * 2


@_rows(case for case in CASES if not case.rollback.can_undo)
def test_what_cannot_be_undone_is_refused_and_begun_anew(family: Family) -> None:
    engines = _engines(family, "masked")
    prompt, reply = family.first
    _feed(engines, 0, prompt, 1)
    item = EngineSlice(KEY, 3, np.array([1], np.int32), None, 1)
    (output,) = engines[0].run([item])
    assert output.fault == ("unsupported", f"a recurrent state cannot go back from {len(prompt)} tokens to 3")
    rows = _feed(engines, 0, prompt, 1)
    assert int(rows[0].argmax()) == reply[0]
    for one in engines:
        one.truncate(KEY, 3)
        assert one.length(KEY) == 0


def _engines(family: Family, engine: str) -> list[StageEngine]:
    """As a peer makes them: warmed up, checked, with what the manifest says of them required."""
    return [create_engine(_request(family, entry, engine)) for entry in family.manifest.stages]


def _request(family: Family, entry: StageEntry, engine: str) -> EngineRequest:
    xml = family.store.stage_xml(family.manifest, entry.index)
    return EngineRequest(xml, family.manifest, entry, "exact", engine, "CPU", threads=1, cells=1024)


def _feed(engines: Sequence[StageEngine], first: int, token_ids: Sequence[int], wanted: int) -> FloatArray:
    hidden = None
    for engine in engines:
        (output,) = engine.run([EngineSlice(KEY, first, np.array(token_ids, np.int32), hidden, wanted)])
        assert output.fault is None, output.fault
        hidden = output.rows.copy()
    assert hidden is not None
    return hidden


REFUSED = {
    "gemma3": "gemma3 cannot be used with speculation on the engine masked: its sliding window of 16 tokens "
    "counts cells that a rollback hides",
    "granite-hybrid": "granite-hybrid cannot be used with speculation: its recurrent states cannot be rolled "
    "back",
}


@_rows(case for case in CASES if case.name in REFUSED)
def test_a_drafter_that_was_asked_for_is_refused_where_it_would_be_wrong(
    family: Family, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLEETCHAT_CACHE_DIR", str(family.store.root.parent))
    arguments = ["ask", USER, "--recipe", str(family.recipe), "--kv", "masked", "--drafter", "ngram"]
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert REFUSED[family.case.name] in err


@_rows(case for case in CASES if case.asked)
def test_two_peers_answer_what_the_uncut_model_answers(
    family: Family, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command itself, two embedded stages, two turns; drafts are made where the engine allows it."""
    case = family.case
    monkeypatch.setenv("FLEETCHAT_CACHE_DIR", str(family.store.root.parent))
    arguments = ["--recipe", str(family.recipe), "--precision", "exact", "--temperature", "0", "--json"]
    code = main(["ask", USER, "--then", THEN, *arguments, "--max-tokens", str(TOKENS)])
    out, err = capsys.readouterr()
    assert code == 0, err
    document = json.loads(out)
    answers = document["answers"]
    assert [one["token_ids"] for one in answers] == [family.first[1], family.second[1]]
    assert [one["prompt_tokens"] for one in answers] == [len(family.first[0]), len(family.second[0])]
    assert answers[0]["finish_reason"] == "stop"
    assert len(document["stages"]) == 2
    assert document["kv"] == ("paged" if case.pages else "masked")
    drafts = case.pages or case.rollback is Rollback.MASK
    assert {one["speculation"]["drafter"] for one in answers} == {"ngram" if drafts else "none"}
    assert ("cannot be used with speculation" in err) == (not drafts)
