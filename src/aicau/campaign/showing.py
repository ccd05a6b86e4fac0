"""What a campaign predicts, and how it does: the expected error by round, what to do next, and its figures."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from aicau import tables
from aicau.campaign import handout
from aicau.campaign.looking import Looking
from aicau.core.engine import HERE, Engine
from aicau.core.errors import InputError
from aicau.core.files import check_new, is_report, named, write_whole
from aicau.tables import candidates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from aicau.campaign.progress import Progress


class Showing(Looking):
    """The verbs of a campaign that show what its models are worth; they fit what is missing."""

    def predictions(self, details: bool = False, engine: Engine = HERE) -> Iterator[pa.Table]:
        """`predict` as a stream of Arrow tables, each computed when it is wanted."""
        models = {view.settings["target"]: view.models.current() for view in self.views()}
        settings, several = self.settings, len(models) > 1
        measured: dict[str, dict[int, tuple[Any, int]]] = {}  # by target and candidate
        with self.store.reading() as session:
            parts = [part[1:] for part in session.features()] if details else [(ids, b"") for ids in session.ids()]
            spans = list(itertools.pairwise(itertools.accumulate(session.sizes(), initial=0)))
            for target in models if details else ():
                measured[target] = handout.measured(session.of(target))
        kind = pa.string() if self.task == "classification" else pa.float64()
        said = zip(*(engine.over(model.columns, spans) for model in models.values()), strict=True)
        for span, (ids, features), each in zip(spans, parts, said, strict=True):
            own = {settings["id"]: candidates.ids_of(ids, settings)}
            if details:
                table = candidates.unpack(features)
                own |= {c["name"]: table.column(c["name"]) for c in settings["columns"] if c["kind"] == "ignored"}
            found = dict(own)
            for target, columns in zip(models, each, strict=True):
                if details:
                    values, counts = zip(*(measured[target].get(at, (None, 0)) for at in range(*span)), strict=True)
                    columns |= {"measured": pa.array(values, kind), "measured_n": pa.array(counts, pa.int64())}
                for name, column in columns.items():
                    name = f"{target}_{name}" if several else name
                    found[f"aicau_{name}" if name in own else name] = pa.array(column)
            yield pa.table(found)

    def predict(
        self, path: str | Path | None = None, force: bool = False, details: bool = False, engine: Engine = HERE
    ) -> pd.DataFrame | None:
        """The debiased mean of every candidate, 95% intervals of the truth and of a new measurement, and the parts of
        the expected squared error of a network: epistemic, bias, aleatoric.

        For classification the most probable label, the calibrated probability of each, and the parts of the expected
        log loss; for counts the interval holds whole numbers, and the parts are of the expected Poisson divergence.
        Of several targets each has these columns, with its name in front: yield_mean, purity_mean.

        Parameters
        ----------
        path : str or Path, optional
            Stream the table into this CSV, Parquet or Excel file instead of returning it.
        force : bool
            Replace an existing file.
        details : bool
            Also the ignored columns, and mean and number of the measurements of each candidate.
        engine : Engine
            Where shards of the candidates are predicted; the numbers do not depend on it.
        """
        if path is None:
            return pa.concat_tables(self.predictions(details, engine)).to_pandas()
        check_new(named(path), force, self.store.engine.url.database)
        stream = self.predictions(details, engine)
        whole = itertools.chain([next(stream)], stream)  # what cannot be predicted is said before a file is begun
        write_whole(Path(path), lambda partial: tables.write(whole, partial), force)
        return None

    def progress(self) -> pd.DataFrame:
        """The error over all candidates by round, beside that of predicting the mean and the noise of a measurement.

        Returns
        -------
        DataFrame
            One row per round: `round`, `measurements`; `error` of the predictions against the truth over all
            candidates, with its 90% interval `low` to `high`; `mean_only`, the error of predicting the mean for every
            candidate; `noise` of one measurement; `r2`; `new_error`, `new_low`, `new_high` against a new measurement;
            `gain`, the share of `error` that another batch is expected to take away;
            `held_out`, the error on the batch that was measured next, and `held_out_centred`, the same with the shifts
            of its plates taken out; `held_r2`, how much of the differences between new candidates the models of earlier
            rounds predicted. Root mean squares for values, mean losses for labels and counts. Rows of several targets
            stand below each other, with the `target` of each.
        """
        if len(self.targets) > 1:
            parts = [(view.settings["target"], view.outlook().rounds) for view in self.views()]
            return pd.concat([rounds.assign(target=name) for name, rounds in parts], ignore_index=True)
        return self.outlook().rounds

    def advice(self) -> str:
        """Whether to go on or to stop, and why."""
        if len(self.targets) > 1:
            return " ".join(f"{view.settings['target']}: {view.outlook().advice}" for view in self.views())
        return self.outlook().advice

    def outlook(self) -> "Progress":
        """What `progress` and `advice` come from, with measured beside predicted values; fits what is missing."""
        from aicau.campaign.progress import look

        self._check_one()
        moment = self.moment()
        if not self.models.missing(moment):
            self.models.at(moment)
            self.models.renew()
        with self.store.reading() as session:
            return look(session)

    def report(self, path: str | Path, force: bool = False) -> Path:
        """One HTML file that needs no network: how good the model is, what is noise, what comes next and why.

        It replaces an earlier report, and another file only with `force`.
        """
        from aicau.report.page import render

        force = force or is_report(named(path))
        check_new(named(path), force, self.store.engine.url.database)
        text = render(self)  # type: ignore[arg-type]
        return write_whole(Path(path), lambda partial: partial.write_text(text, encoding="utf-8"), force)

    def plot_learning_curve(self) -> "Figure":
        """Draw `progress`: the expected error over all candidates by number of measurements."""
        return self._plot("learning")

    def plot_parity(self) -> "Figure":
        """Draw measured values beside what had been predicted of them; labels told beside predicted ones."""
        return self._plot("parity", "confusion")

    def plot_map(self) -> "Figure":
        """Draw the candidates in two dimensions, with what was measured and what comes next."""
        return self._plot("candidates")

    def plot_noise(self) -> "Figure":
        """Draw how far measurements of one candidate scatter; whether labels of one candidate agree."""
        return self._plot("noise", "agreement")

    def plot_batches(self) -> "Figure":
        """Draw the shift of every batch; the share of every label in it."""
        return self._plot("shifts", "shares")

    def _check_one(self) -> None:
        if len(self.targets) > 1:
            first = next(iter(self.targets))
            raise InputError(f"there are several targets; look at one of them, such as of({first!r})")

    def _plot(self, *names: str) -> "Figure":
        from aicau.report.gather import plot

        self._check_one()
        return plot(self, *names)  # type: ignore[arg-type]

    def export(self, folder: str | Path, force: bool = False) -> list[Path]:
        """The whole campaign as plain files: tables as CSV, settings as JSON, models as safetensors.

        Files of an earlier export are replaced; others of the same names only with `force`.
        """
        from aicau.campaign.export import export

        return export(self.store, named(folder), force)
