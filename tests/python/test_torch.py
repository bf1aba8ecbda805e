"""windrow.torch. Needs torch, which is large, so without it these tests are skipped."""

import io

import numpy
import pytest

import windrow

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch_cells import D, H, TREES, graphs_of, make, plain, random_words  # noqa: E402  after the check


def test_computes_what_torch_does_with_all_gradients():
    module, cell = make()
    words = random_words()
    weights = torch.randn(len(words), H)
    (plain(module, words) * weights).sum().backward()
    expected = [words.grad.clone(), *(parameter.grad.clone() for parameter in module.parameters())]
    words.grad = None
    module.zero_grad()
    h = module(graphs_of(cell), words=words)
    torch.testing.assert_close(h, plain(module, words))
    (h * weights).sum().backward()
    for gradient, right in zip([words.grad, *(parameter.grad for parameter in module.parameters())], expected):
        torch.testing.assert_close(gradient, right, rtol=1e-4, atol=1e-5)


def test_gradcheck():
    module, cell = make()
    graphs = graphs_of(cell)
    words = random_words().double().detach().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: module(graphs, words=x).double(), words, eps=1e-2, atol=2e-3, rtol=1e-2, nondet_tol=0
    )


def test_two_calls_before_one_backward():
    module, cell = make()
    graphs, words = graphs_of(cell), random_words()
    (module(graphs, words=words).sum() + 2 * module(graphs, words=-words).sum()).backward()
    twice = [parameter.grad.clone() for parameter in module.parameters()]
    module.zero_grad()
    (plain(module, words).sum() + 2 * plain(module, -words).sum()).backward()
    for gradient, right in zip(twice, (parameter.grad for parameter in module.parameters())):
        torch.testing.assert_close(gradient, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("optimiser", "rate"), [("SGD", 1.0), ("Adam", 0.05)])
def test_trains_with_optimisers_of_torch(optimiser, rate):
    module, cell = make()
    words, graphs = random_words(False), graphs_of(cell)
    target = torch.randn(len(words), H).tanh() / 2
    steps = getattr(torch.optim, optimiser)(module.parameters(), lr=rate)
    losses = []
    for _ in range(100):
        steps.zero_grad()
        loss = torch.nn.functional.mse_loss(module(graphs, words=words), target)
        loss.backward()
        steps.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    shared = module.state_dict()["win"]
    numpy.testing.assert_array_equal(shared.numpy(), module._shared[0].windrow.value.numpy())


def test_is_saved_and_loaded():
    module, cell = make(1)
    other, other_cell = make(2)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    words = random_words(False)
    torch.testing.assert_close(other(graphs_of(other_cell), words=words), module(graphs_of(cell), words=words))


def test_stands_between_layers_of_torch():
    module, cell = make()
    graphs = graphs_of(cell)
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(10, D), "trees": module, "out": torch.nn.Linear(H, 3)})
    tokens = torch.arange(sum(len(tree) for tree in TREES)) % 10
    logits = model["out"](model["trees"](graphs, words=model["embed"](tokens)))
    torch.nn.functional.cross_entropy(logits, tokens % 3).backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def test_inference_and_autocast():
    module, cell = make()
    graphs, words = graphs_of(cell), random_words(False)
    with torch.no_grad():
        h = module(graphs, words=words)
    assert not h.requires_grad
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = module(graphs, words=words.bfloat16())
    torch.testing.assert_close(mixed.float(), h, rtol=0.05, atol=0.05)


def test_refuses_what_it_cannot_do():
    module, cell = make()
    with pytest.raises(windrow.MisuseError, match="float64"):
        module.double()
    with pytest.raises(windrow.MisuseError, match="'words' has shape"):
        module(graphs_of(cell), words=torch.zeros(3))
    with pytest.raises(windrow.MisuseError, match="words"):
        module(graphs_of(cell))
    for wrong in (random_words().tolist(), random_words(False).numpy(), (random_words(),), None):
        with pytest.raises(TypeError, match="'words' is given as .* expected a torch.Tensor, or a tuple"):
            module(graphs_of(cell), words=wrong)
    assert module.float() is module and module.to("cpu") is module


def test_outputs_are_checked_when_a_module_is_made():
    parameters = windrow.Parameters(seed=1)

    @windrow.vertex_function
    def doubled(v):
        v.push("y", v.pull_row("x", 2) * 2)

    for wrong, text in (
        ("nope", "doubled has no output 'nope'; expected 'y'"),
        ([], "outputs are"),
        (["y", "y"], "outputs are"),
    ):
        with pytest.raises(windrow.MisuseError, match=text):
            windrow.torch.Module(doubled, parameters, wrong)
    with pytest.raises(TypeError, match="function is a Parameters; expected a VertexFunction"):
        windrow.torch.Module(parameters, doubled, "y")
    module = windrow.torch.Module(doubled, parameters, "y")
    assert repr(module) == "Module(doubled, outputs=y)"
    graphs = windrow.Graphs.from_lists(doubled, [{"children": [[]]}])
    x = torch.ones(1, 2)
    with pytest.raises(windrow.MisuseError, match="doubled: is given 'z', which it does not pull; expected 'x'"):
        module(graphs, x=x, z=x)
    assert module(graphs, x=x).tolist() == [[2, 2]]
