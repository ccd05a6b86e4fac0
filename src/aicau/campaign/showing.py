"""How a campaign does: the expected error by round, what to do next, and its figures."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from aicau.campaign.looking import Looking
from aicau.campaign.models import Models
from aicau.core.errors import InputError
from aicau.core.files import check_new, is_report, named, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from aicau.campaign.progress import Progress


class Showing(Looking):
    """The verbs of a campaign that show what its models are worth; they fit what is missing."""

    models: Models

    @abstractmethod
    def views(self) -> Sequence["Showing"]:
        """One campaign for each target."""

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

        if len(self.targets) > 1:
            raise InputError(
                f"there are several targets; look at one of them, such as of({next(iter(self.targets))!r})"
            )
        moment = self.moment()
        if not self.models.missing(moment):
            self.models.at(moment)
            self.models.renew()
        with self.store.reading() as session:
            return look(session, self.settings, self.task)

    def report(self, path: str | Path, force: bool = False) -> Path:
        """One HTML file that needs no network: how good the model is, what is noise, what comes next and why.

        It replaces an earlier report, and another file only with `force`.
        """
        from aicau.report.gather import gather
        from aicau.report.page import render

        force = force or is_report(named(path))
        check_new(named(path), force, self.store.engine.url.database)
        text = render(gather(self))  # type: ignore[arg-type]
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

    def _plot(self, *names: str) -> "Figure":
        from aicau.report.gather import plot

        return plot(self, *names)  # type: ignore[arg-type]
