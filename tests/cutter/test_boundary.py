"""Layers are found by their states, boundaries by the ways that values take; no name is looked at."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetchat.cutter.boundary import dominators, find_layers, find_path, find_taint
from fleetchat.cutter.costs import OPERATION_COST, find_costs
from fleetchat.cutter.view import GraphView, NodeView
from fleetchat.errors import CutRefused
from tests.cutter.sketch import HIDDEN, Sketch


def test_a_plain_model_is_cut_at_its_residual_stream() -> None:
    sketch = Sketch()
    embedded = sketch.embed()
    first = sketch.layer(embedded, "b")
    second = sketch.layer(first, "a")
    third = sketch.layer(second, "c")
    normed = sketch.head(third)
    layers = find_layers(sketch.view())
    assert layers.variables == (("b.key", "b.value"), ("a.key", "a.value"), ("c.key", "c.value"))
    assert layers.boundaries == (first, second)
    assert (layers.embedding, layers.head) == (embedded, normed)
    assert (layers.hidden, layers.vocabulary, layers.count) == (8, 32, 3)


def test_masks_and_tables_are_not_tainted_but_states_and_tokens_are() -> None:
    sketch = Sketch()
    mask = sketch.add("Parameter", shape=(-1, -1), names=frozenset({"attention_mask"}))
    past = sketch.read("k")
    past_length = sketch.add("ShapeOf", past, shape=(4,))
    bias = sketch.add("Slice", mask, past_length, shape=(-1, -1))
    x = sketch.embed()
    taint = find_taint(sketch.view())
    assert [taint.tainted(index) for index in (mask, past_length, bias, past, x)] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert taint.active[x]
    assert not taint.active[past]
    assert taint.variables_of(past) == ("k",)


def test_layers_that_share_a_state_stay_together() -> None:
    sketch = Sketch()
    x = sketch.embed()
    key = sketch.append("0.key", x)
    x = sketch.add("Add", x, sketch.add("MatMul", x, key, shape=HIDDEN), shape=HIDDEN)
    own = sketch.append("1.key", x)
    both = sketch.add("MatMul", x, own, key, shape=HIDDEN)  # layer 1 looks at the keys of layer 0 as well
    shared = sketch.add("Add", x, both, shape=HIDDEN)
    sketch.head(sketch.layer(shared, "2"))
    layers = find_layers(sketch.view())
    assert layers.variables == (("0.key", "1.key"), ("2.key", "2.value"))
    assert layers.boundaries == (shared,)


def test_a_second_tensor_to_every_layer_leaves_no_boundary() -> None:
    sketch = Sketch()
    x = sketch.embed()
    extra = sketch.add("MatMul", x, sketch.weight(9), shape=(-1, -1, 4))
    sketch.head(sketch.layer(sketch.layer(x, "0", extra), "1", extra))
    layers = find_layers(sketch.view())
    assert layers.count == 1
    assert layers.boundaries == ()


def test_a_post_norm_model_is_cut_at_the_norm() -> None:
    sketch = Sketch()
    x = sketch.embed()
    boundaries = []
    for name in ("0", "1"):
        x = sketch.add("MVN", sketch.layer(x, name), shape=HIDDEN)
        boundaries.append(x)
    sketch.head(x)
    assert find_layers(sketch.view()).boundaries == (boundaries[0],)


def test_states_that_do_not_grow_make_layers_too() -> None:
    sketch = Sketch()
    x = sketch.embed()
    state = sketch.read("conv", (-1, 8, 4))
    mixed = sketch.add("Add", x, sketch.add("MatMul", x, state, shape=HIDDEN), shape=HIDDEN)
    sketch.add("Assign", mixed, variable="conv")
    sketch.head(sketch.layer(mixed, "1"))
    assert find_layers(sketch.view()).variables == (("conv",), ("1.key", "1.value"))


def test_models_that_cannot_be_cut_say_why() -> None:
    stateless = Sketch()
    stateless.head(stateless.embed())
    with pytest.raises(CutRefused, match="keeps no state"):
        find_layers(stateless.view())

    two_outputs = Sketch()
    x = two_outputs.layer(two_outputs.embed(), "0")
    two_outputs.head(x)
    two_outputs.head(x)
    with pytest.raises(CutRefused, match="2 outputs, not 1"):
        find_layers(two_outputs.view())

    unused = Sketch()
    x = unused.layer(unused.embed(), "0")
    unused.append("stray", x)
    unused.head(x)
    with pytest.raises(CutRefused, match="'stray'"):
        find_layers(unused.view())

    no_tokens = GraphView((NodeView("Parameter", names=frozenset({"pixels"})), NodeView("Result", (0,))))
    with pytest.raises(CutRefused, match="0 inputs named input_ids or inputs_embeds"):
        find_layers(no_tokens)


def test_a_hidden_width_that_changes_is_refused() -> None:
    sketch = Sketch()
    x = sketch.layer(sketch.embed(), "0")
    x = sketch.add("MatMul", sketch.layer(x, "1"), shape=(-1, -1, 6))
    sketch.head(sketch.layer(x, "2"))
    with pytest.raises(CutRefused, match=r"hidden width changes from layer to layer: \[6, 8\]"):
        find_layers(sketch.view())


def test_costs_count_own_weights_and_the_head() -> None:
    sketch = Sketch()
    x = sketch.layer(sketch.embed(values=1000), "0", width=50)
    sketch.head(sketch.layer(x, "1", width=70), values=200)
    view = sketch.view()
    costs = find_costs(view, find_layers(view))
    operations = 11  # norm, query, 2 x (read, gather, concat), attention, projection, addition
    first, second = costs.layers
    assert first == 101 + operations * OPERATION_COST
    assert second == 142 + (operations + 1) * OPERATION_COST  # the final norm comes on top
    assert costs.head == 200 + 2 * OPERATION_COST  # product and output
    assert costs.embedding == 0
    assert costs.weight_bytes == (1000, 101, 142, 200)


@st.composite
def random_graphs(draw: st.DrawFn) -> GraphView:
    """A random graph of active nodes from one input to one output."""
    size = draw(st.integers(2, 14))
    nodes = [NodeView("Parameter", shape=(-1, -1), names=frozenset({"input_ids"}))]
    for index in range(1, size):
        sources = draw(st.sets(st.integers(0, index - 1), min_size=1, max_size=3))
        nodes.append(NodeView("Op", tuple(sorted(sources)), HIDDEN))
    nodes.append(NodeView("Result", (size - 1,), HIDDEN))
    return GraphView(tuple(nodes))


@settings(max_examples=150)
@given(random_graphs())
def test_the_linear_pass_finds_exactly_the_dominators(view: GraphView) -> None:
    end = len(view) - 1
    path = find_path(view, find_taint(view), end)
    found = {path[place] for place in dominators(view, path)}
    assert found == {index for index in path if not _can_avoid(view, path, index)}


def _can_avoid(view: GraphView, path: tuple[int, ...], avoided: int) -> bool:
    """Is there a way from the input to the output that does not pass `avoided`."""
    reached = {path[0]} - {avoided}
    for index in path:
        if index != avoided and reached & set(view[index].sources):
            reached.add(index)
    return path[-1] in reached
