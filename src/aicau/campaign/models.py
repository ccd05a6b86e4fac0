"""The models of a campaign: one after each tell, fitted when it is first needed and kept in the store."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from aicau.campaign.setup import check_weights, is_log, task_of
from aicau.core.errors import InputError, unknown
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
    """What a campaign of one target has fitted so far."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.last: tuple[int, Model] | None = None  # with the measurements it was fitted to
        self._x: Any = None  # Tensor or Rows
        self.keep = True  # new models in the store
        self.pool: Models | None = None  # those that read the candidates for all of several targets

    def features(self) -> Any:  # (n, d)
        """The candidates, encoded and standardised, in float64; very many in float32, as `Rows`, which read candidates
        that stay in their files when they are needed."""
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
        """A column of the pool with the weight or cost of each candidate."""
        import torch

        parts = []
        with self.store.reading() as session:
            for _, _, features in session.features():
                table = candidates.unpack(features)
                if column not in table.column_names:
                    raise unknown("column of weights", str(column), table.column_names)
                parts.append(pd.to_numeric(table.column(column).to_pandas(), errors="coerce").to_numpy(dtype=float))
        return torch.from_numpy(check_weights(np.concatenate(parts), column))

    def missing(self, moment: Moment) -> str:
        """Why no model can be fitted yet; empty where one can."""
        from aicau.prediction import outcome

        labels = sorted({row.label for row in moment.rows} - {None})
        return outcome(task_of(self.store.settings)).too_few(labels) if moment.rows else "nothing is measured yet"

    def ready(self, moment: Moment) -> "Model | None":
        """The model of this moment's measurements if it is in memory or in the store."""
        if self.last is None or self.last[0] != moment.measured:
            kept = self.kept(moment.basis)
            self.last = None if kept is None else (moment.measured, kept)
        return None if self.last is None else self.last[1]

    def at(self, moment: Moment) -> "Model":
        """The model of this moment's measurements, fitted if need be."""
        if (found := self.ready(moment)) is None:
            found = self.fit(moment)
            self.last = (moment.measured, found)
        return found

    def told(self, moment: Moment) -> "Told":
        """The measurements of this moment, with the controls of their plates."""
        from aicau.campaign.model import read
        from aicau.campaign.plates import kept

        with self.store.reading() as session:
            controls = kept(session, moment.basis)
        return read(moment.rows, controls, is_log(self.store.settings))

    def fit(self, moment: Moment, keep: bool = True) -> "Model":
        """The model of this moment, fitted now and kept where this user may write."""
        from safetensors.torch import save

        from aicau.campaign.choice import keys_of, model_round
        from aicau.campaign.model import fit

        settings = self.store.settings
        keys = keys_of(settings["seed"], model_round(moment, task_of(settings)))
        model = fit(self.features(), self.told(moment), keys, settings, moment.basis)
        if keep and self.keep and not self.store.read_only:
            tensors, info = model.pack()
            blob = save(tensors)
            with self.store.writing(model=True) as session:
                session.add_model(moment.basis, moment.round, blob, info)
        return model

    def kept(self, basis: int) -> "Model | None":
        """The model that was kept after so many tells; None where none can be read."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        from aicau.campaign.model import unpack

        with self.store.reading() as session:
            row = session.model(basis)
        if row is None:
            return None
        try:
            return unpack(load(bytes(row.tensors)), row.info, self.features(), self.store.settings)
        except (SafetensorError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            return None  # damaged: it is fitted again

    def past(self, basis: int, round: int, keep: bool = False) -> "Model | None":
        """The model of an earlier round, fitted again where none was kept; None where none could be fitted."""
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
        """Fit models of earlier versions again: their figures have no expected error."""
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
