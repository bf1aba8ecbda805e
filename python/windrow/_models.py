"""Models and their data by name, and models in checkpoints."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, Sequence

from . import _windrow
from ._checkpoints import CheckpointFolder
from ._errors import FileError
from ._parameters import Parameters
from ._windrow import LearningRate

if TYPE_CHECKING:
    from ._windrow import Communicator, Device, Prediction


class Model(_windrow.Model):
    """A network with its data and vocabularies. Made by make_model() and load_model()."""

    __slots__ = ("_set",)

    _set: Parameters

    @property
    def parameters(self) -> Parameters:
        """The parameters, each time the same object."""
        try:
            return self._set
        except AttributeError:
            self._set = self._parameters(Parameters)
            return self._set

    def predict(self, texts: Sequence[str], *, beam: int = 1, parts: bool = False) -> list[Prediction]:
        """Predicts for texts, as one minibatch. Waits.

        >>> model = windrow.load_model("run")
        >>> [prediction.label.name for prediction in model.predict(["It works", "It does not"])]

        Args:
            texts: in the form that ``model.kind.input`` describes, such as sentences; lines for ``windrow predict``.
            beam: for models that write text, such as translations: the width of the beam search.
            parts: whether models that label a text as a whole label each part, too.

        Raises DataError for a text that cannot be read, naming its number from 1, and MisuseError if the model predicts
        nothing for texts.
        """
        if isinstance(texts, str):
            raise TypeError("predict() got a str; expected a list of them")
        return self._predict(texts, beam, parts)

    def sample_texts(
        self, start: str = "", texts: int = 1, *, seed: int = 1, temperature: float = 1.0, longest: int = 100
    ) -> list[str]:
        """Draws texts from a language model, as one minibatch; all begin with the words of `start`. Waits.

        `temperature` divides log-probabilities; 0 takes the most probable word. `longest` is the most words that are
        drawn for a text. Raises MisuseError for other models.
        """
        return self._sample_texts(start, texts, seed, temperature, longest)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint into a new folder, for load_model() and ``windrow predict``. Waits.

        To continue training later, use Trainer.save() instead. Raises FileError if the folder has checkpoints or cannot
        be written.
        """
        self._save(os.fspath(path))

    def take_weights(self, of: Model) -> dict[str, tuple[int, int]]:
        """Copies the parameters of another model of this kind, matching rows of words and columns of labels by name.

        Returns, for each kind of names, how many names both models have, and how many this model has. Raises
        MisuseError for a model of another kind or other sizes.
        """
        return self._take_weights(of)

    def set_word_vectors(self, file: str | os.PathLike[str]) -> tuple[int, int]:
        """Sets the rows of the word embedding whose words occur in a file of GloVe or word2vec, as text.

        Returns the number of rows that were set, and the number of all rows. Raises MisuseError for a model without
        word embedding, and DataError, naming the line, for a file of another width.
        """
        return self._set_word_vectors(os.fspath(file))

    def __repr__(self) -> str:
        return f"<windrow.Model '{self.kind.name}', {self.parameters!r}>"


def make_model(
    name: str,
    *,
    data: str | os.PathLike[str] = "",
    device: Device | None = None,
    seed: int = 1,
    samples: int = 0,
    cell: str = "",
    switches: Sequence[str] = (),
    dropout: float = 0.0,
    word_dropout: float = 0.0,
    training_file: str = "",
    validation_file: str = "",
    source_language: str = "",
    target_language: str = "",
    **sizes: int,
) -> Model:
    """Makes a model with its training set and validation set. ``model_kinds()`` describes all models.

    >>> model = windrow.make_model("tree-lstm", data="sst", hidden=128)
    >>> trainer = windrow.Trainer(model, "adagrad", 0.05)
    >>> trainer.train_epoch()
    >>> trainer.evaluate()

    Args:
        name: one of model_kinds(), which are those of ``windrow train``.
        data: the folder of the data; without it, data are generated.
        device: where it computes; the host of the default engine if None.
        seed: of initial values and of generated data.
        samples: the number of generated training samples; 0: the kind's default.
        cell, switches: of those that the kind has; see ModelKind.
        dropout, word_dropout: rates of elements, and of words as a whole, for kinds that take them.
        training_file, validation_file: files to read in place of those of ModelKind.files.
        source_language, target_language: of parallel text.
        sizes: sizes that the kind has, such as ``hidden``.

    Raises MisuseError, listing what there is, for an unknown name, size, cell or switch, and DataError for malformed or
    missing data.
    """
    return Model(
        name,
        device,
        os.fspath(data),
        seed,
        samples,
        cell,
        sizes,
        set(switches),
        dropout,
        word_dropout,
        training_file,
        validation_file,
        source_language,
        target_language,
    )


def load_model(folder: str | os.PathLike[str], device: Device | None = None) -> Model:
    """Loads the newest undamaged checkpoint that Trainer.save(), Model.save() or ``windrow train --save`` has written.

    >>> windrow.load_model("run").predict(["It works"])

    The model can only predict: it has no data. Raises FileError if the folder has no such checkpoint of a model.
    """
    try:
        return Model(os.fspath(folder), device)
    except FileError:
        checkpoint, _ = CheckpointFolder(folder).newest()
        if checkpoint is None or "format" in checkpoint.record:
            raise
    raise FileError(
        f"{os.fspath(folder)}: has a checkpoint of parameters, and not of a model; expected one of Trainer.save() or "
        "Model.save(). Parameters.load() and SavedCheckpoint.restore() load parameters"
    )


class Trainer(_windrow.Trainer):
    """Trains a model on its training set, and scores it on its validation set. See make_model().

    >>> trainer = windrow.Trainer(model, "adam", 1e-3, clip_norm=5)
    >>> writer = windrow.CheckpointWriter("run")
    >>> for epoch in range(10):
    ...     print(trainer.train_epoch().loss, trainer.evaluate())
    ...     trainer.save(writer)

    Args:
        model: the model to train.
        optimiser: 'sgd', 'momentum', 'nesterov', 'adagrad', 'rmsprop' or 'adam'.
        rate: the learning rate, a number or a LearningRate. None: the model's with 'sgd', otherwise PyTorch's default.
        minibatch: samples per minibatch.
        micro_batches: the number of parts in which a minibatch is computed, one after the other, to save memory.
        penalty, decay, clip_norm: as for Optimiser and AdamW.
        averages: the decay of averages of the parameters over steps; if given, evaluate() uses the averages.
        seed: of the order of samples.
        group: trains together with the trainers of the other members, such as the processes of MpiWorld.group(); all
            make the same calls.
        sharded: see DataParallel.

    Equal seeds and calls give bitwise equal results.
    """

    __slots__ = ("_about",)

    def __init__(
        self,
        model: Model,
        optimiser: Literal["sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam"] = "sgd",
        rate: float | LearningRate | None = None,
        *,
        minibatch: int = 64,
        micro_batches: int = 1,
        penalty: float = 0.0,
        decay: float = 0.0,
        clip_norm: float | None = None,
        averages: float | None = None,
        seed: int = 1,
        group: Communicator | None = None,
        sharded: bool = False,
    ) -> None:
        super().__init__(
            model,
            optimiser,
            LearningRate(rate) if isinstance(rate, (int, float)) else rate,
            minibatch=minibatch,
            micro_batches=micro_batches,
            penalty=penalty,
            decay=decay,
            clip_norm=clip_norm,
            averages=averages,
            seed=seed,
            group=group,
            sharded=sharded,
        )
        self._about = f"<windrow.Trainer of {model!r}, '{optimiser}'>"

    def __repr__(self) -> str:
        return self._about
