"""The models of a campaign: one for each set of measurements, fitted by whoever needs it first, kept in the store."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from aicau.campaign.setup import check_weights, ensemble_of, is_log, strategy_of, task_of
from aicau.core.errors import InputError
from aicau.store import Moment, Store, inplace
from aicau.tables import candidates

if TYPE_CHECKING:
    from torch import Tensor

    from aicau.campaign.model import Model, Told

EXACT = 10**7  # numbers in the pool up to which they are kept in float64


def encoded(kept: bytes, columns: list[dict[str, Any]]) -> "Tensor":  # (s, d)
    """The candidates of a chunk."""
    import torch

    return torch.from_numpy(candidates.encode(candidates.unpack(kept), columns))


class Models:
    """What a campaign has fitted so far."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.last: tuple[int, Model] | None = None  # with the measurements it was fitted to
        self._x: Any = None  # Tensor or Rows
        self.pool: Models | None = None  # who reads the candidates for several targets

    def features(self) -> Any:  # (n, d)
        """The candidates, encoded and standardised; in float64, as simulations are, unless there are very many: then as
        `Rows`, which leave what is in place there."""
        if self.pool is not None:
            return self.pool.features()
        if self._x is None or len(self._x) != self.store.settings["candidates"]:
            import torch

            from aicau.core.pool import Rows

            settings = self.store.settings
            parts: list[Any] = []
            with self.store.reading() as session:
                sizes = session.sizes()
                for _, _, kept in session.features():
                    chunk = partial(encoded, kept, settings["columns"])
                    parts.append(chunk if parts and inplace.refers(kept) else chunk())
            n, width = sum(sizes), parts[0].shape[1]
            exact = n * width <= EXACT
            whole = [part() if exact and callable(part) else part for part in parts]
            self._x = torch.cat(whole).double() if exact else Rows(parts, sizes, width)
        return self._x

    def weights(self, column: str) -> "Tensor":  # (n,)
        """How much each candidate counts, by a column of the pool."""
        import torch

        parts = []
        with self.store.reading() as session:
            for _, _, features in session.features():
                table = candidates.unpack(features)
                if column not in table.column_names:
                    known = ", ".join(table.column_names)
                    raise InputError(f"the candidates have no column {column!r}; known: {known}")
                parts.append(pd.to_numeric(table.column(column).to_pandas(), errors="coerce").to_numpy(dtype=float))
        return torch.from_numpy(check_weights(np.concatenate(parts), column))

    def missing(self, moment: Moment) -> str:
        """Why no model can be fitted yet; empty where one can."""
        from aicau.prediction import outcome

        labels = sorted({row.label for row in moment.rows} - {None})
        return outcome(task_of(self.store.settings)).too_few(labels) if moment.rows else "nothing is measured yet"

    def at(self, moment: Moment) -> "Model":
        """The model of this moment's measurements."""
        if self.last is None or self.last[0] != moment.measured:
            self.last = (moment.measured, self.kept(moment.basis) or self.fit(moment))
        return self.last[1]

    def told(self, moment: Moment) -> "Told":
        """The measurements of this moment, with the controls of their plates."""
        from aicau.campaign.model import read
        from aicau.campaign.plates import kept

        with self.store.reading() as session:
            controls = kept(session, moment.basis)
        return read(moment.rows, controls, is_log(self.store.settings))

    def fit(self, moment: Moment, keep: bool = True) -> "Model":
        """Fitted now; kept where this user may write."""
        from safetensors.torch import save

        from aicau.campaign.choice import keys_of, model_round
        from aicau.campaign.model import fit

        settings, task = self.store.settings, task_of(self.store.settings)
        keys = keys_of(settings["seed"], model_round(moment, task))
        how = (strategy_of(settings), task, ensemble_of(settings), moment.basis, is_log(settings))
        model = fit(self.features(), self.told(moment), keys, *how)
        if keep and not self.store.read_only:
            tensors, info = model.pack()
            blob = save(tensors)
            with self.store.writing(model=True) as session:
                session.add_model(moment.basis, moment.round, blob, info)
        return model

    def kept(self, basis: int) -> "Model | None":
        """The model that was kept of so many tells; None where there is none that can be read."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        from aicau.campaign.model import unpack

        with self.store.reading() as session:
            row = session.model(basis)
        how = (strategy_of(self.store.settings), task_of(self.store.settings), is_log(self.store.settings))
        try:
            return None if row is None else unpack(load(bytes(row.tensors)), row.info, self.features(), *how)
        except (SafetensorError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            return None  # damaged: it is fitted again

    def past(self, basis: int, round: int, keep: bool = False) -> "Model | None":
        """The model of an earlier round; fitted again where none was kept. None where nothing could be fitted."""
        if (kept := self.kept(basis)) is not None:
            return kept
        with self.store.reading() as session:
            moment = Moment.past(session, basis, round)
            sizes = {basis: size for basis, _, size in session.model_rounds()}
        keep = keep and bool(sizes.get(basis))  # what was dropped stays dropped
        return None if self.missing(moment) else self.fit(moment, keep)

    def rounds(self) -> list[tuple[int, int]]:
        """(basis, round) of every model that was fitted, oldest first."""
        with self.store.reading() as session:
            return [(basis, round) for basis, round, _ in session.model_rounds()]

    def renew(self) -> None:
        """Fit the models again that an earlier version kept: it did not say what it expected of its errors."""
        with self.store.reading() as session:
            old = [(basis, round) for basis, round, own in session.model_figures() if own.get("unknown") is None]
        for basis, round in old:
            self.past(basis, round, keep=True)

    def earlier(self, moment: Moment) -> "Model | None":
        """The model of the round before."""
        last = {round: basis for basis, round in self.rounds() if round < moment.round}
        # Not kept when fitted again: who asks may hold the lock for writing by now.
        return self.past(last[max(last)], max(last)) if last else None

    def current(self) -> "Model":
        """The model of what is measured now."""
        with self.store.reading() as session:
            moment = Moment.read(session)
        if missing := self.missing(moment):
            target = self.store.settings["target"]
            raise InputError(f"{missing}, so there is nothing to predict from; tell more results of {target!r} first")
        return self.at(moment)
