"""windrow.torch in the ways in which PyTorch's users use modules. Without torch, these tests are skipped."""

import copy
import io
import os
import pickle
import subprocess
import sys

import pytest

import windrow

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch_cells import D, H, TREES, graphs_of, make, plain, random_words  # noqa: E402  after the check


def gradients(module):
    return [parameter.grad.clone() for parameter in module.parameters()]


def assert_all_close(some, others):
    for one, other in zip(some, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


class Sentences(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trees, cell = make()
        self.read, self.classify = torch.nn.Linear(D, D), torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(H, 3))
        self.graphs = graphs_of(cell)

    def forward(self, words):
        return self.classify(self.trees(self.graphs, words=self.read(words)))


def test_vertices_pull_chosen_rows():
    module, cell = make()
    table = torch.randn(3, D, requires_grad=True)
    rows = torch.arange(sum(map(len, TREES))) % 3
    weights = torch.randn(len(rows), H)
    (plain(module, table[rows]) * weights).sum().backward()
    expected = [table.grad.clone(), *gradients(module)]
    for chosen in (rows, rows.to(torch.int32), rows.numpy(), rows.tolist()):
        table.grad = None
        module.zero_grad()
        (module(graphs_of(cell), words=(table, chosen)) * weights).sum().backward()
        assert_all_close([table.grad, *gradients(module)], expected)
    with pytest.raises(windrow.MisuseError, match="sample 0, vertex 1"):
        module(graphs_of(cell), words=(table, rows + 2))


def test_gradients_accumulate_over_calls_of_backward():
    module, cell = make()
    graphs, words = graphs_of(cell), random_words()

    def accumulated(run):
        words.grad = None
        module.zero_grad()
        for factor in (1, 2, 3):
            (run() * factor).sum().backward()
        return [words.grad.clone(), *gradients(module)]

    assert_all_close(accumulated(lambda: module(graphs, words=words)), accumulated(lambda: plain(module, words)))


def test_backward_runs_again_with_retain_graph():
    module, cell = make()
    words = random_words()
    out = module(graphs_of(cell), words=words)
    out.sum().backward(retain_graph=True)
    once = words.grad.clone()
    out.sum().backward()
    torch.testing.assert_close(words.grad, 2 * once)
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant):
    module, cell = make()
    graphs, words = graphs_of(cell), random_words()
    module(graphs, words=words).sum().backward()
    expected = [words.grad.clone(), *gradients(module)]
    words.grad = None
    module.zero_grad()
    call = lambda x: module(graphs, words=x)  # noqa: E731
    torch.utils.checkpoint.checkpoint(call, words, use_reentrant=reentrant).sum().backward()
    assert_all_close([words.grad, *gradients(module)], expected)


def test_no_gradients_are_computed_without_need():
    module, cell = make()
    graphs = graphs_of(cell)
    with torch.inference_mode():
        assert not module(graphs, words=random_words(False)).requires_grad
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    assert not module(graphs, words=random_words(False)).requires_grad
    module.bias.requires_grad_(True)
    module(graphs, words=random_words(False)).sum().backward()
    assert module.bias.grad is not None and module.win.grad is None


def test_modules_of_one_set_are_tied():
    parameters = windrow.Parameters(seed=1)
    weight = parameters.add("weight", D, D)

    def cell(activation):
        @windrow.vertex_function()
        def row(v):
            v.push("y", activation(v.pull_row("x", D) @ weight))

        return windrow.torch.Module(row, parameters, "y"), windrow.Graphs.from_lists(row, [{"children": [[]] * 3}])

    (first, graphs), (second, others) = cell(windrow.tanh), cell(windrow.sigmoid)
    model = torch.nn.ModuleList([first, second])
    assert len(list(model.parameters())) == 1
    x = torch.randn(3, D)
    second(others, x=first(graphs, x=x)).sum().backward()
    found = gradients(model)
    model.zero_grad()
    torch.sigmoid(torch.tanh(x @ first.weight) @ second.weight).sum().backward()
    assert_all_close(found, gradients(model))


def test_dropout_follows_train_and_eval():
    parameters = windrow.Parameters(seed=1)

    @windrow.vertex_function()
    def row(v):
        v.push("y", windrow.dropout(v.pull_row("x", 100), 0.5))

    module = windrow.torch.Module(row, parameters, "y")
    graphs = windrow.Graphs.from_lists(row, [{"children": [[]]}])
    x = torch.ones(1, 100, requires_grad=True)
    y = module(graphs, x=x)
    assert 0 < (y == 0).sum() < 100
    for _ in range(2):  # the second backward() draws the same elements
        x.grad = None
        y.sum().backward(retain_graph=True)
        torch.testing.assert_close(x.grad, y.detach())
    y = module.eval()(graphs, x=x)
    torch.testing.assert_close(y, x)
    with pytest.raises(windrow.MisuseError, match="it has dropout; expected train()"):
        y.sum().backward()


def test_deep_copies_have_parameters_of_their_own():
    module, cell = make()
    module.bias.requires_grad_(False)
    model = torch.nn.ModuleList([torch.nn.Linear(D, D), module, windrow.torch.Module(cell, module._set, "h")]).eval()
    words, before = random_words(), plain(module, random_words()).detach()
    copied = copy.deepcopy(copy.deepcopy(model))
    assert (
        type(copied[1]) is windrow.torch.Module and copied[1].win is copied[2].win and copied[1].win is not module.win
    )
    assert not copied[1].training and not copied[1].bias.requires_grad and copied[1].win.requires_grad
    copied[2](graphs_of(cell), words=words).sum().backward()
    assert copied[1].win.grad is not None and module.win.grad is None
    with torch.no_grad():
        copied[1].win -= copied[1].win.grad
    torch.testing.assert_close(copied[1](graphs_of(cell), words=words), plain(copied[1], words))
    torch.testing.assert_close(module(graphs_of(cell), words=words), before)
    assert not torch.allclose(copied[1](graphs_of(cell), words=words), before)


def test_deep_copies_keep_ties_to_other_modules():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.decode = torch.nn.Linear(H, D, bias=False)
            self.trees, self.cell = make()
            self.decode.weight = self.trees.win
            self.graphs = graphs_of(self.cell)

    model = Model()
    copied = copy.deepcopy(model)
    assert copied.decode.weight is copied.trees.win is not model.trees.win
    assert copied.cell is model.cell and copied.graphs is model.graphs and copied.graphs[0].vertices == 3
    with torch.no_grad():
        copied.decode.weight.fill_(0.5)
    words = random_words(False)
    torch.testing.assert_close(copied.trees(copied.graphs, words=words), plain(copied.trees, words))


def test_averaged_models():
    module, cell = make()
    average = torch.optim.swa_utils.AveragedModel(module)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    seen = []
    for _ in range(3):
        optimiser.zero_grad()
        module(graphs_of(cell), words=random_words(False)).square().sum().backward()
        optimiser.step()
        average.update_parameters(module)
        seen.append(module.win.detach().clone())
    torch.testing.assert_close(average.module.win.detach(), torch.stack(seen).mean(0))
    words = random_words(False)
    torch.testing.assert_close(average(graphs_of(cell), words=words), plain(average.module, words))


@pytest.mark.parametrize("copied", [copy.copy, pickle.dumps, lambda module: torch.save(module, io.BytesIO())])
@pytest.mark.parametrize("inside", [False, True])
def test_pickles_are_refused(copied, inside):
    module, _ = make()
    with pytest.raises(windrow.MisuseError, match="expected copy.deepcopy"):
        copied(torch.nn.Sequential(module) if inside and copied is not copy.copy else module)


@pytest.mark.parametrize(
    "moved", [lambda m: m.double(), lambda m: m.half(), lambda m: m.to("meta"), lambda m: m.share_memory()]
)
@pytest.mark.parametrize("inside", [False, True])
def test_moves_are_refused_and_change_nothing(moved, inside):
    module, cell = make()
    words = random_words(False)
    before = module(graphs_of(cell), words=words)
    with pytest.raises(windrow.MisuseError, match="expected it to stay"):
        moved(torch.nn.Sequential(module) if inside else module)
    torch.testing.assert_close(module(graphs_of(cell), words=words), before)
    with torch.no_grad():
        module.win.zero_()
    torch.testing.assert_close(module(graphs_of(cell), words=words), plain(module, words))


def test_names_that_a_module_has_get_a_suffix():
    parameters = windrow.Parameters(seed=1)
    for name in ("forward", "a.b", "a_b"):
        parameters.add(name, D, D)

    @windrow.vertex_function()
    def row(v):
        v.push("y", v.pull_row("x", D) @ parameters["forward"])

    module = windrow.torch.Module(row, parameters, "y")
    assert list(module.state_dict()) == ["forward_", "a_b", "a_b_"]
    x = random_words(False)
    graphs = windrow.Graphs.from_lists(row, [{"children": [[]] * len(x)}])
    torch.testing.assert_close(module(graphs, x=x), x @ module.forward_)


def test_compiled_models_call_it():
    model, words = Sentences(), random_words()
    expected = model(words)
    expected.sum().backward()
    right = [words.grad.clone(), *gradients(model)]
    words.grad = None
    model.zero_grad()
    found = torch.compile(model, backend="eager")(words)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    assert_all_close([words.grad, *gradients(model)], right)


def test_memory_stays_flat():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    model, words = Sentences(), random_words(False)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)

    def steps(count):
        for _ in range(count):
            optimiser.zero_grad()
            model(words).square().sum().backward()
            optimiser.step()
        return resident()

    before = steps(2000)
    assert steps(8000) - before < 2 << 20


# Processes.

DATA = """
import torch, windrow, windrow.torch
from torch_cells import D, graphs_of, make, random_words

class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.module, cell = make()
        self.graphs, self.words = graphs_of(cell), random_words(False)
        self.first = [0, 3, 4, 9]  # the first word of each tree
    def __len__(self):
        return len(self.graphs)
    def __getitem__(self, i):
        assert self.graphs[i].vertices == self.first[i + 1] - self.first[i]  # workers may read graphs
        return i, self.words[self.first[i] : self.first[i + 1]]

def collate(items):
    return [i for i, words in items], torch.cat([words for i, words in items])

if __name__ == "__main__":
    data = Data()
    data.module(data.graphs, words=data.words).sum().backward()  # the engine's threads exist
    loader = torch.utils.data.DataLoader(
        data, batch_size=2, num_workers=2, collate_fn=collate, multiprocessing_context="fork")
    for _ in range(3):
        for numbers, words in loader:
            data.module(data.graphs[numbers], words=words).sum().backward()
    print("done")
"""

PARALLEL = """
import sys, torch
from test_torch_use import Sentences, random_words

rank = int(sys.argv[1])
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
torch.manual_seed(5)
model = Sentences()
if rank == 1:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()  # DistributedDataParallel sends those of process 0
parallel = torch.nn.parallel.DistributedDataParallel(model)
optimiser = torch.optim.SGD(parallel.parameters(), lr=0.1)
words = random_words(False)
for _ in range(5):
    optimiser.zero_grad()
    parallel(words * (rank + 1)).square().sum().backward()
    optimiser.step()
torch.save(model.state_dict(), sys.argv[3])
torch.distributed.destroy_process_group()
"""


def environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), os.path.dirname(__file__)])}


def test_data_loaders_fork(tmp_path):
    program = tmp_path / "loads.py"
    program.write_text(DATA)
    done = subprocess.run(
        [sys.executable, str(program)], env=environment(), capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0 and done.stdout == "done\n", done.stdout + done.stderr


def test_distributed_data_parallel(tmp_path):
    program = tmp_path / "parallel.py"
    program.write_text(PARALLEL)
    files = [tmp_path / "0.pt", tmp_path / "1.pt"]
    processes = [
        subprocess.Popen(
            [sys.executable, str(program), str(rank), str(tmp_path / "meeting"), str(file)],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, file in enumerate(files)
    ]
    told = [process.communicate(timeout=100)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], told
    first, second = map(torch.load, files)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    # The same in one process: the mean of both gradients.
    torch.manual_seed(5)
    model = Sentences()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    words = random_words(False)
    for _ in range(5):
        optimiser.zero_grad()
        ((model(words).square().sum() + model(2 * words).square().sum()) / 2).backward()
        optimiser.step()
    assert_all_close(first.values(), model.state_dict().values())
