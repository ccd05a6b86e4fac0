"""The models of a campaign: one for each set of measurements, fitted by whoever needs it first, kept in the store."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aicau.campaign.campaign.setup import ensemble_of, strategy_of, task_of
from aicau.core.errors import InputError
from aicau.store import Moment, Store
from aicau.tables.files import candidates

if TYPE_CHECKING:
    from torch import Tensor

    from aicau.campaign.campaign.model import Model


class Models:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.last: tuple[int, Model] | None = None  # with the measurements it was fitted to
        self._x: Tensor | None = None

    def features(self) -> "Tensor":  # (n, d) float32
        if self._x is None:
            import torch

            parts = []
            with self.store.reading() as session:
                for _, _, features in session.features():
                    parts.append(candidates.encode(candidates.unpack(features), self.store.settings["columns"]))
            self._x = torch.from_numpy(np.concatenate(parts))
        return self._x

    def enough(self, moment: Moment) -> bool:
        """Whether a model can be fitted: something was measured, and of labels at least two classes."""
        labels = task_of(self.store.settings) == "classification"
        return bool(moment.rows) and (not labels or len({row.label for row in moment.rows}) > 1)

    def at(self, moment: Moment) -> "Model":
        """The model of this moment's measurements."""
        if self.last is None or self.last[0] != moment.basis:
            self.last = (moment.basis, self.kept(moment.basis) or self.fit(moment))
        return self.last[1]

    def fit(self, moment: Moment, keep: bool = True) -> "Model":
        """Fitted now; kept where this user may write."""
        from safetensors.torch import save

        from aicau.campaign.campaign.choice import round_key
        from aicau.campaign.campaign.model import fit
        from aicau.prediction.values.measured import Measured

        settings = self.store.settings
        key = round_key(settings["seed"], moment.round)
        task, strategy, ensemble = task_of(settings), strategy_of(settings), ensemble_of(settings)
        model = fit(self.features(), Measured.of(moment.rows), key, strategy, task, ensemble)
        model = replace(model, info=model.info | {"basis": moment.basis})
        if keep and not self.store.read_only:
            tensors, info = model.state()
            blob = save(tensors)
            with self.store.writing() as session:
                session.add_model(moment.basis, moment.round, blob, info)
        return model

    def kept(self, basis: int) -> "Model | None":
        """The model that was kept of so many tells; None where there is none that can be read."""
        from safetensors import SafetensorError

        with self.store.reading() as session:
            row = session.model(basis)
        try:
            return None if row is None else self.loaded(row)
        except (SafetensorError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            return None  # damaged, or kept by another version

    def loaded(self, row: Any) -> "Model":
        from safetensors.torch import load

        from aicau.campaign.campaign.model import Model

        return Model.load(load(bytes(row.tensors)), row.info, self.features())

    def earlier(self, moment: Moment, most: int) -> "list[Model]":
        """The models of the rounds before, the latest last."""
        with self.store.reading() as session:
            last = {round: basis for basis, round, _ in session.model_rounds() if round < moment.round}
            moments = [Moment.past(session, last[round], round) for round in sorted(last)[-most:]]
        # Not kept when fitted again: who asks may hold the lock for writing by now.
        return [self.kept(past.basis) or self.fit(past, keep=False) for past in moments]

    def current(self) -> "Model":
        """The model of what is measured now."""
        with self.store.reading() as session:
            moment = Moment.read(session)
        if not moment.rows:
            raise InputError("nothing was measured yet, so there is nothing to predict from; tell some results first")
        return self.at(moment)
