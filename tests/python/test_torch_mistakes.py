"""Uses of windrow.torch in which wrong gradients would go unnoticed: errors, or correct results. Needs torch."""

import numpy
import pytest

import windrow

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch_cells import D, graphs_of, make, random_words  # noqa: E402  after the check


@pytest.mark.parametrize("changed", ["words", "win"])
def test_changes_between_forward_and_backward_are_errors(changed):
    module, cell = make()
    words = random_words() * 1
    out = module(graphs_of(cell), words=words)
    with torch.no_grad():
        (words if changed == "words" else module.win).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize(
    "change", [lambda p: setattr(p["left"], "value", p["left"].value.numpy() * 2), lambda p: p.sgd(0.1)]
)
def test_changes_by_windrow_between_forward_and_backward_are_errors(change):
    module, cell = make()
    words = random_words()
    out = module(graphs_of(cell), words=words)
    out.sum().backward(retain_graph=True)
    change(module._set)
    with pytest.raises(windrow.MisuseError, match=r"parameter '\w+' was changed by windrow"):
        out.sum().backward()
    module(graphs_of(cell), words=words).sum().backward()


def test_second_derivatives_are_errors():
    module, cell = make()
    words = random_words()
    out = module(graphs_of(cell), words=words).sum()
    with pytest.raises(windrow.MisuseError, match="create_graph=True .* first derivatives only"):
        torch.autograd.grad(out, words, create_graph=True)
    out.backward()  # a first one is still possible
    assert words.grad.abs().sum() > 0


@pytest.mark.parametrize("given", ["iterator", "list", "rows"])
def test_a_second_backward_computes_what_was_given(given):
    module, cell = make()
    table = random_words()
    order = list(range(len(table)))
    all_graphs = list(graphs_of(cell))
    graphs = iter(all_graphs) if given == "iterator" else all_graphs
    for rows in (
        (order, torch.tensor(order), torch.tensor(order).int(), numpy.arange(8, -1, -1)[::-1])
        if given == "rows"
        else [list(order)]
    ):
        table.grad = None
        out = module(graphs, words=(table, rows))
        out.sum().backward(retain_graph=True)
        once = table.grad.clone()
        if given == "list":
            graphs.reverse()
        rows[0] = 2
        out.sum().backward()
        torch.testing.assert_close(table.grad, 2 * once)
        rows[0] = 0


def test_frozen_and_requires_grad_agree():
    module, cell = make()
    graphs, words = graphs_of(cell), random_words()
    module._set["win"].frozen = True
    with pytest.raises(windrow.MisuseError, match=r"'win' is frozen in windrow .* expected requires_grad_\(False\)"):
        module(graphs, words=words)
    with torch.no_grad():
        module(graphs, words=words)
    module.win.requires_grad_(False)
    module(graphs, words=words).sum().backward()
    assert module.win.grad is None and module.left.grad.abs().sum() > 0
    assert not windrow.torch.Module(cell, module._set, "h").win.requires_grad


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_nothing_is_recorded_without_gradients(mode):
    module, cell = make()
    graphs, words = graphs_of(cell), random_words()
    module(graphs, words=words)
    assert module._set.minibatches == 1
    with mode():
        assert not module(graphs, words=words).requires_grad
    assert module._set.minibatches == 1  # counts only recorded calls
    module(graphs, words=words)
    assert module._set.minibatches == 2


def test_modules_of_a_model_are_tied():
    model = windrow.make_model("tree-lstm", samples=2, hidden=4)
    assert model.parameters is model.parameters

    @windrow.vertex_function()
    def row(v):
        v.push("y", v.pull_row("x", D))

    modules = [windrow.torch.Module(row, model.parameters, "y") for _ in range(2)]
    tied, alone = (len(list(torch.nn.ModuleList(some).parameters())) for some in (modules, modules[:1]))
    assert tied == alone == len(model.parameters)


def test_parts_of_subclasses_are_converted():
    class Larger(windrow.torch.Module):
        def __init__(self, cell, parameters):
            super().__init__(cell, parameters, "h")
            self.register_buffer("mask", torch.ones(2))
            self.extra = torch.nn.Parameter(torch.ones(2))
            self.linear = torch.nn.Linear(2, 2)

    module, cell = make()
    larger = Larger(cell, module._set)
    names = list(larger.state_dict())
    larger(graphs_of(cell), words=random_words()).sum().backward()
    seen = []
    larger._apply(lambda tensor: seen.append(tuple(tensor.shape)) or tensor)
    assert seen.count((2,)) == 3 and (2, 2) in seen
    assert list(larger.state_dict()) == names
    with pytest.raises(windrow.MisuseError, match="Modules before it in the same model were converted"):
        larger.double()
    assert larger.mask.dtype == larger.extra.dtype == larger.linear.weight.dtype == torch.float32
    larger.mask, larger.linear = larger.mask.double(), larger.linear.double()
    assert larger.float() is larger
    assert larger.mask.dtype == larger.linear.weight.dtype == torch.float32
    assert larger.win is module.win and larger.win.data_ptr() == module.win.data_ptr()
    larger(graphs_of(cell), words=random_words()).sum().backward()


def test_replaced_parameters_are_errors():
    module, cell = make()
    graphs, words = graphs_of(cell), random_words()
    state = {name: value.detach().clone() for name, value in module.named_parameters()}
    with pytest.raises(windrow.MisuseError, match="'win' .* was replaced"):
        torch.func.functional_call(module, state, (graphs,), {"words": words})
    module(graphs, words=words)
    module.load_state_dict(state)
    module(graphs, words=words)
    module.load_state_dict(state, assign=True)
    with pytest.raises(windrow.MisuseError, match="'win' .* was replaced"):
        module(graphs, words=words)
