"""The models of a campaign: one for each set of measurements, fitted by whoever needs it first, kept in the store."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aicau.campaign.setup import ensemble_of, strategy_of, task_of
from aicau.core.errors import InputError
from aicau.store import Moment, Store
from aicau.tables import candidates

if TYPE_CHECKING:
    from torch import Tensor

    from aicau.campaign.model import Model


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
        if self.last is not None and self.last[0] == moment.basis:
            return self.last[1]
        with self.store.reading() as session:
            kept = session.model(moment.basis)
        model = self.fit(moment) if kept is None else self.loaded(kept)
        self.last = (moment.basis, model)
        return model

    def fit(self, moment: Moment) -> "Model":
        """Fitted now, and kept."""
        from safetensors.torch import save

        from aicau.campaign.choice import round_key
        from aicau.campaign.model import fit
        from aicau.prediction.measured import Measured

        settings = self.store.settings
        key = round_key(settings["seed"], moment.round)
        task, strategy, ensemble = task_of(settings), strategy_of(settings), ensemble_of(settings)
        model = fit(self.features(), Measured.of(moment.rows), key, strategy, task, ensemble)
        model = replace(model, info=model.info | {"basis": moment.basis})
        tensors, info = model.state()
        blob = save(tensors)
        with self.store.writing() as session:
            session.add_model(moment.basis, moment.round, blob, info)
        return model

    def loaded(self, row: Any) -> "Model":
        from safetensors.torch import load

        from aicau.campaign.model import Model

        return Model.load(load(bytes(row.tensors)), row.info, self.features())

    def earlier(self, moment: Moment, most: int) -> "list[Model]":
        """The models of the rounds before, the latest last."""
        with self.store.reading() as session:
            last = {round: basis for basis, round, _ in session.model_infos() if round < moment.round}
            rows = [session.model(last[round]) for round in sorted(last)[-most:]]
        return [self.loaded(row) for row in rows]

    def current(self) -> "Model":
        """The model of what is measured now."""
        with self.store.reading() as session:
            moment = Moment.read(session)
        if not moment.rows:
            raise InputError("nothing was measured yet, so there is nothing to predict from; tell some results first")
        return self.at(moment)
