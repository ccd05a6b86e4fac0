"""The verbs of a campaign that use its models: status, predictions, expected errors, advice, report and figures."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from aicau import tables
from aicau.campaign.looking import STATES, Looking
from aicau.campaign.progress import COLUMNS, Progress, look
from aicau.campaign.setup import ensemble_of, targets_of, task_of
from aicau.core.engine import HERE, Engine
from aicau.core.errors import InputError
from aicau.core.files import check_new, is_report, named, write_whole
from aicau.store import FAILED, Session, changes, schema
from aicau.tables import candidates

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Showing(Looking):
    """The verbs that use models; those that are missing are fitted."""

    def status(self) -> dict[str, Any]:
        """Counts, settings and `warnings`, as plain JSON."""
        with self.store.reading() as session:
            settings, asks, rows = session.settings, session.table(schema.asks), session.measurements(current=False)
            current = [row for row in rows if row.superseded_by is None]
            sizes = [size for _, _, size in session.model_rounds() if size]
            states = Counter(row.status for row in session.proposals())
            closed = changes.barred(session, ()).values()
            parts: dict[str, Any] = {}  # how good predictions are of each of several targets
            for target, weight in settings.get("targets", ()):
                own = session.of(target)
                told = sum(row.status == "ok" for row in own.measurements())
                parts[target] = {"weight": weight, "measurements": told, "progress": _now(own)}
            return {
                **{name: settings[name] for name in ("candidates", "strategy", "seed", "id", "batch")},
                "measurements": sum(row.status == "ok" for row in current),
                "measured": len({row.candidate for row in current if row.status == "ok"}),
                "failed_wells": sum(row.status == FAILED for row in current),
                "superseded": len(rows) - len(current),
                **{state: states[state] for state in STATES},
                "excluded": sum(reason.startswith("excluded") for reason in closed),
                "batches": len({row.batch for row in current} - {None}),
                "changed": session.table(schema.events)[-1].time,
                "last_size": asks[-1].size if asks else 0,
                "rounds": asks[-1].round if asks else 0,
                "asks": len(asks),
                "tells": sum(row.correct != changes.CHANGED for row in session.table(schema.tells)),
                "models": len(sizes),
                "model_bytes": sum(sizes),
                "task": task_of(settings),
                "classes": sorted({row.label for row in current} - {None}),
                "ensemble": ensemble_of(settings),
                "goal": settings.get("goal", "map"),
                "weight": settings.get("weight"),
                "target": ", ".join(targets_of(settings)),
                **({"progress": None, "targets": parts} if parts else {"progress": _now(session)}),
                "features": [c["name"] for c in settings["columns"] if c["kind"] != "ignored"],
                "warnings": _warnings(session),
            }

    def warnings(self) -> list[str]:
        """Possible mistakes: columns of the pool that look wrong, and unusual values."""
        with self.store.reading() as session:
            return _warnings(session)

    def predictions(self, details: bool = False, engine: Engine = HERE) -> Iterator[pa.Table]:
        """`predict` as a stream of Arrow tables, each computed when it is wanted."""
        models = {view.settings["target"]: view.models.current() for view in self.views()}
        settings, several = self.settings, len(models) > 1
        measured: dict[str, dict[int, tuple[Any, int]]] = {}  # by target and candidate
        with self.store.reading() as session:
            parts = [part[1:] for part in session.features()] if details else [(ids, b"") for ids in session.ids()]
            spans = list(itertools.pairwise(itertools.accumulate(session.sizes(), initial=0)))
            for target in models if details else ():
                measured[target] = _measured(session.of(target))
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
        whole = itertools.chain([next(stream)], stream)  # raises here, before a file is begun
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
        if len(self.targets) == 1:
            return self.outlook().rounds
        parts = [view.outlook().rounds.assign(target=view.settings["target"]) for view in self.views()]
        return pd.concat(parts, ignore_index=True)

    def advice(self) -> str:
        """Whether to go on or to stop, and why."""
        if len(self.targets) > 1:
            return " ".join(f"{view.settings['target']}: {view.outlook().advice}" for view in self.views())
        return self.outlook().advice

    def outlook(self) -> Progress:
        """Rounds, advice, and measured values beside their predictions; missing models are fitted."""
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

        return export(self.whole, named(folder), force)

    def __repr__(self) -> str:
        found = self.status()
        return (
            f"<Campaign {self.store.where}: {found['candidates']:,} candidates, {found['measured']:,} measured,"
            f" {found['pending']:,} pending; {found['task']} of {found['target']!r}>"
        )

    def _repr_html_(self) -> str:
        """A small table, for notebooks."""
        found = self.status()
        names = ("candidates", "measured", "measurements", "pending", "rounds", "target", "batch", "task", "strategy")
        rows = [("campaign", self.store.where), *((name, found[name]) for name in names)]
        rows += [("warning", words) for words in found["warnings"]]
        cells = (f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows)
        return f"<table>{''.join(cells)}</table>"


def _measured(session: Session) -> dict[int, tuple[Any, int]]:
    """Mean (or most frequent label) and number of the current measurements of each candidate."""
    found = defaultdict[int, Counter[Any]](Counter)
    for row in session.measurements():
        if row.status == "ok":
            found[row.candidate][row.value if row.label is None else row.label] += row.repeats
    if task_of(session.settings) == "classification":
        return {c: (min(some, key=lambda name: (-some[name], name)), some.total()) for c, some in found.items()}
    sums = {c: math.fsum(value * n for value, n in some.items()) for c, some in found.items()}
    return {c: (sums[c] / some.total(), some.total()) for c, some in found.items()}


def _now(session: Session) -> dict[str, Any] | None:
    """The last row of `progress`, and the advice; None before the first model."""
    found = look(session)
    rows: list[dict[Any, Any]] = found.rounds[COLUMNS].to_dict("records")
    return rows[-1] | {"advice": found.advice} if rows else None


def _warnings(session: Session) -> list[str]:
    words = candidates.notes(session.settings["columns"], session.settings["candidates"])
    far = changes.suspects(session)
    there = [row for row in session.measurements() if row.id in far] if far else []
    names = candidates.described(session, [row.candidate for row in there]).iloc[:, 0]
    for row, name in zip(there, names, strict=True):
        expected, tell = far[row.id]
        where = "" if row.batch is None else f" on {row.batch!r}"
        words.append(
            f"{row.target or session.settings['target']} {row.value:.6g} of {name!r}{where} (tell {tell}) is far from"
            f" what was known (about {expected:.3g}); is it a slip? replace it with 'aicau tell --correct'; is it"
            " right? say so with 'aicau confirm'"
        )
    return words
