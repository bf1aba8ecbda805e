"""Models by name, their trainers and checkpoints, and progress. Tests that need the program `windrow` are skipped if it
was not built."""

import io
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import windrow
from windrow import DataError, FileError, MisuseError

PROGRAM = pathlib.Path(os.environ.get("WINDROW_PROGRAM", pathlib.Path(windrow.__file__).parents[2] / "bin" / "windrow"))


def program(*arguments, text=None):
    """Runs `windrow`, and returns what it prints."""
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM.name} was not built")
    done = subprocess.run([PROGRAM, *map(str, arguments)], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def small(name="tree-lstm", **options):
    return windrow.make_model(name, samples=64, **{"hidden": 8, "embedding": 8} | options)


def test_kinds_tell_what_there_is():
    kinds = windrow.model_kinds()
    tree = kinds["tree-lstm"]
    assert tree.name == "tree-lstm" and tree.files == ["train.txt", "dev.txt"] and "child-sum" in tree.cells
    assert {"hidden", "embedding"} <= tree.sizes.keys() and tree.input and tree.about in repr(tree)
    assert "tied" in kinds["var-lstm"].switches and not kinds["tree-fc"].input


@pytest.mark.parametrize("name", ["bilstm", "listops", "parser", "seq2seq", "var-lstm", "mlp"])
def test_each_kind_trains(name):
    sizes = {size: 8 for size in ("hidden", "embedding", "words") if size in windrow.model_kinds()[name].sizes}
    model = windrow.make_model(name, samples=20, **sizes)
    trainer = windrow.Trainer(model, minibatch=10)
    done = trainer.train(20)
    assert done.samples == 20 and done.loss > 0 and trainer.minibatches == 2 and done.seconds > 0
    assert all(np.isfinite(value) for value in trainer.evaluate().values())


def test_a_trainer_learns_and_counts():
    model = small(dropout=0.1)
    assert (model.training_samples, model.validation_samples) == (64, 8)
    trainer = windrow.Trainer(model, "adagrad", 0.05, minibatch=16, clip_norm=5)
    seen = []
    first = trainer.train_epoch(lambda so_far: seen.append(so_far.samples))
    assert seen == [16, 32, 48] and (trainer.epochs, trainer.minibatches) == (1, 4) and first.samples == 64
    assert "64 samples" in repr(first)
    for _ in range(4):
        last = trainer.train_epoch()
    assert last.loss < first.loss and trainer.validation_loss is None
    assert set(trainer.evaluate()) == {"root accuracy", "all-node accuracy"} and trainer.validation_loss > 0
    assert trainer.rate == 0.05
    trainer.scale_rate(0.5)
    assert trainer.rate == 0.025
    assert windrow.Trainer(small()).rate == pytest.approx(0.1, rel=1)  # the model's


def test_training_stops_where_its_function_says_or_raises():
    trainer = windrow.Trainer(small(), minibatch=16)
    assert trainer.train_epoch(lambda so_far: False).samples == 16
    with pytest.raises(ZeroDivisionError):
        trainer.train_epoch(lambda so_far: 1 / 0)
    assert trainer.epochs == 0 and trainer.train_epoch().samples == 64 and trainer.epochs == 1
    with pytest.raises(MisuseError, match="another call of this thread"):
        trainer.train_epoch(lambda so_far: trainer.evaluate())


def test_a_resumed_trainer_continues_with_the_same_bits(tmp_path):
    def values(model):
        return {p.name: p.value.tolist() for p in model.parameters}

    model = small()
    trainer = windrow.Trainer(model, "adam", 0.01, minibatch=16, averages=0.9)
    trainer.train_epoch(lambda so_far: so_far.samples < 32)
    trainer.save(windrow.CheckpointWriter(tmp_path))
    trainer.train_epoch()
    other = small()
    again = windrow.Trainer(other, "adam", 0.01, minibatch=16, averages=0.9)
    again.resume(windrow.CheckpointFolder(tmp_path).newest()[0])
    again.train_epoch()
    assert values(other) == values(model) and again.minibatches == 4
    wrong = windrow.Trainer(small(), "sgd", minibatch=16)
    with pytest.raises(FileError):
        wrong.resume(windrow.CheckpointFolder(tmp_path).newest()[0])


def test_python_predicts_with_what_the_program_has_trained(tmp_path):
    program("train", "listops", "--samples", 100, "--hidden", 16, "--epochs", 1, "--save", tmp_path / "run")
    texts = ["[MAX 2 9 [MIN 4 7 ] ]", "[SM 3 4 ]"]
    told = [
        json.loads(line) for line in program("predict", tmp_path / "run", "--json", text="\n".join(texts)).splitlines()
    ]
    model = windrow.load_model(tmp_path / "run")
    found = model.predict(texts)
    assert [p.label.name for p in found] == [one["label"] for one in told]
    for prediction, one in zip(found, told):
        assert prediction.label.probabilities == [one["probabilities"][name] for name in model.labels]
        assert prediction.label.probability == max(prediction.label.probabilities)


@pytest.mark.parametrize("by_trainer", [False, True])
def test_the_program_predicts_with_what_python_has_saved(tmp_path, by_trainer):
    model = small()
    trainer = windrow.Trainer(model, "adagrad", 0.05)
    trainer.train_epoch()
    if by_trainer:
        trainer.save(windrow.CheckpointWriter(tmp_path / "run"))
    else:
        model.save(tmp_path / "run")
    text = " ".join(model.vocabularies["words"][:3])
    expected = model.predict([text])[0].label
    assert windrow.load_model(tmp_path / "run").predict([text])[0].label.probabilities == expected.probabilities
    told = json.loads(program("predict", tmp_path / "run", "--text", text, "--json"))
    assert told["label"] == expected.name and told["probabilities"][expected.name] == expected.probability


def test_trainings_go_on_in_python_and_begin_in_the_program(tmp_path):
    flags = ["--samples", 64, "--hidden", 8, "--embedding", 8, "--optimiser", "adagrad", "--rate", 0.05, "--epochs", 1]
    program("train", "tree-lstm", *flags, "--save", tmp_path / "run")
    trainer = windrow.Trainer(small(), "adagrad", 0.05)
    trainer.resume(windrow.CheckpointFolder(tmp_path / "run").newest()[0])
    assert (trainer.epochs, trainer.minibatches) == (1, 1)
    trainer.train_epoch()
    trainer.save(windrow.CheckpointWriter(tmp_path / "other"))
    assert ": 8 parameters" in program("train", "tree-lstm", *flags, "--init-from", tmp_path / "other")


def test_predictions_have_what_the_model_predicts():
    tagged = small("bilstm").predict(["Mary met Bob"])[0]
    assert tagged.label is None and [part.text for part in tagged.parts] == ["Mary", "met", "Bob"]
    assert sum(tagged.parts[0].label.probabilities) == pytest.approx(1) and "Mary" in repr(tagged.parts[0])
    tree = small().predict(["good film", "bad"], parts=True)
    assert len(tree) == 2 and len(tree[0].parts) == 3 and tree[0].text is None and tree[0].likelihood is None
    parsed = windrow.make_model("parser", samples=20).predict(["they sat"])[0]
    assert [word.form for word in parsed.words] == ["they", "sat"] and sum(word.head == 0 for word in parsed.words) == 1
    words = windrow.make_model("var-lstm", samples=20, hidden=8, embedding=8)
    likelihood = words.predict(["no it was n't"])[0].likelihood
    assert likelihood.tokens == 5 and likelihood.perplexity > 1 and likelihood.log_probability < 0
    drawn = words.sample_texts("no", 3, longest=4)
    assert len(drawn) == 3 and all(text.split()[0] == "no" for text in drawn)
    written = windrow.make_model("seq2seq", samples=20, hidden=8, embedding=8)
    assert isinstance(written.predict(["a"], beam=2)[0].text.text, str)
    assert "Prediction" in repr(parsed) and repr(words).startswith("<windrow.Model 'var-lstm'")


def test_weights_and_word_vectors_are_taken_by_name(tmp_path):
    one, other = small(seed=1), small(seed=2)
    found = other.take_weights(one)
    both, of = found["words"]
    assert 0 < both <= of and other.parameters["inner"].value.tolist() == one.parameters["inner"].value.tolist()
    word = one.vocabularies["words"][0]
    (tmp_path / "vectors").write_text(f"{word} {' '.join(['0.5'] * 8)}\n")
    assert one.set_word_vectors(tmp_path / "vectors")[0] == 1 and one.parameters["words"].value.tolist()[1] == [0.5] * 8
    with pytest.raises(MisuseError):
        one.take_weights(one)
    with pytest.raises(MisuseError):
        one.take_weights(small(hidden=4))


def test_errors_say_what_is_wrong(tmp_path):
    model = small()
    for call, kind, text in [
        (lambda: windrow.make_model("tree_lstm"), MisuseError, "expected one of tree-lstm"),
        (lambda: windrow.make_model("tree-lstm", layers=2), MisuseError, "size 'layers' is unknown"),
        (lambda: windrow.make_model("tree-lstm", hidden=0), MisuseError, "hidden 0; expected 1"),
        (lambda: windrow.make_model("tree-lstm", cell="x"), MisuseError, "cell 'x'; expected"),
        (lambda: windrow.make_model("tree-lstm", switches=["x"]), MisuseError, "switch 'x'"),
        (lambda: windrow.make_model("tree-lstm", data=tmp_path), DataError, "train.txt"),
        (lambda: windrow.load_model(tmp_path), FileError, "no checkpoint"),
        (lambda: windrow.load_model(tmp_path / "none"), FileError, "none"),
        (lambda: model.predict("text"), TypeError, "expected a list"),
        (lambda: model.predict(["a", ""]), DataError, "2"),
        (lambda: model.predict(["a"], beam=2), MisuseError, "a beam of 2"),
        (lambda: model.sample_texts(), MisuseError, "samples no texts"),
        (lambda: windrow.Trainer(model, "adamw"), MisuseError, "optimiser = 'adamw'"),
        (lambda: windrow.Trainer(model, minibatch=0), MisuseError, "minibatch"),
        (lambda: windrow.Trainer(1), TypeError, "Model"),
    ]:
        with pytest.raises(kind, match=text):
            call()
    model.save(tmp_path / "run")
    with pytest.raises(FileError):
        model.save(tmp_path / "run")
    assert model.predict([]) == []


def test_a_model_outlives_its_engine():
    engine = windrow.Engine(workers=2)
    model = small(device=windrow.host(engine))
    trainer = windrow.Trainer(model)
    trainer.train(16)
    engine.close()
    for call in (lambda: model.predict(["a"]), lambda: trainer.train(16), lambda: model.parameters["inner"].value):
        with pytest.raises(MisuseError, match="closed"):
            call()


def test_an_interrupt_stops_a_training(run_python):
    run_python(
        """
        import _thread, threading, windrow
        trainer = windrow.Trainer(windrow.make_model("tree-lstm", samples=2000, hidden=32), minibatch=4)
        threading.Timer(0.3, _thread.interrupt_main).start()
        try:
            while True:
                trainer.train_epoch()
        except KeyboardInterrupt:
            print(trainer.minibatches > 0)
        """
    )


def test_minibatches_have_the_order_of_the_cpp_libraries():
    table = windrow.Parameters().add("table", 10, 1)

    @windrow.vertex_function()
    def function(v):
        v.push("y", windrow.embedding(table, v.pull_index("x")))

    graphs = windrow.Graphs.from_arrays(function, np.arange(11), np.zeros(11, int), [], x=np.arange(10))
    order = [[int(graph.index("x")[0]) for graph in of] for of in graphs.minibatches(4, shuffle=7)]
    assert order == [[0, 7, 4, 9], [3, 1, 2, 8], [6, 5]]  # as the C++ test ShuffledMinibatches


def test_generated_treebanks_are_read():
    trees, sentences = windrow.Treebank.generate(5, seed=2), windrow.DependencyTreebank.generate(4)
    assert (len(trees), len(sentences)) == (5, 4) and type(trees) is windrow.Treebank
    assert trees.words(0) == windrow.Treebank.generate(5, seed=2).words(0) != windrow.Treebank.generate(5).words(0)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)


def test_progress_is_a_line_of_a_terminal(monkeypatch, without_tqdm):
    monkeypatch.setattr(sys, "stderr", Terminal())
    bar = windrow.progress([1, 2, 3], "epoch 1")
    for item in bar:
        bar.set_postfix(loss=item / 3, item=item)
    text = sys.stderr.getvalue()
    assert text.startswith("\repoch 1: 0/3 ") and text.count("\n") == 1 and text.endswith("loss=1, item=3\x1b[K\n")
    assert list(windrow.progress(range(2))) == [0, 1] and list(windrow.progress(iter("ab"))) == ["a", "b"]
    with pytest.raises(TypeError):
        len(windrow.progress(iter("ab")))
    assert len(windrow.progress(iter("ab"), total=2)) == 2


def test_progress_is_silent_elsewhere(monkeypatch, without_tqdm):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert list(windrow.progress([1, 2])) == [1, 2] and sys.stderr.getvalue() == ""
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed, object()):
        monkeypatch.setattr(sys, "stderr", stream)
        assert list(windrow.progress([1, 2])) == [1, 2]


def test_progress_is_a_bar_of_tqdm_where_there_is_one(monkeypatch):
    tqdm = pytest.importorskip("tqdm.auto").tqdm
    monkeypatch.setattr(sys, "stderr", Terminal())
    bar = windrow.progress([1, 2], "epoch")
    assert isinstance(bar, tqdm) and list(bar) == [1, 2]
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert list(windrow.progress([1, 2])) == [1, 2] and sys.stderr.getvalue() == ""
