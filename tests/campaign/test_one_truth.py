"""Any sequence of tells of one truth (overlapping, grown, reordered, saved anew) gives what telling it once gives."""

import io

import openpyxl
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicau import Campaign

POOL = pd.DataFrame({"id": ["007", "8", "c-1", "Ünit"], "x": [0.0, 1.0, 2.0, 3.0]})
COATS = ("csv", "semicolon", "tab", "bom", "utf-16", "latin-1", "excel", "template", "frame")


def cells(rows, mark="."):
    for row in rows:
        value = "" if row["y"] is None else repr(row["y"]).replace(".", mark)
        status = "failed" if row["y"] is None else ""
        yield [row["id"], value, row["plate"], str(row["replicate"] or ""), status]


def saved(rows, coat, path):
    """The rows as one of many programs saves them."""
    header = ["id", "y", "plate", "replicate", "status"]
    if coat == "frame":
        return pd.DataFrame([[*one[:1], row["y"], *one[2:3], row["replicate"], one[4]] for one, row in
                             zip(cells(rows), rows, strict=True)], columns=header)  # fmt: skip
    if coat == "excel":
        book = openpyxl.Workbook()
        book.active.append([name.upper() for name in header])
        for row, one in zip(rows, cells(rows), strict=True):
            number = int(one[2]) if one[2].isdecimal() else one[2]  # a spreadsheet makes numbers of names
            book.active.append([one[0], row["y"], number, row["replicate"], one[4] or None])
        out = io.BytesIO()
        book.save(out)
        path.write_bytes(out.getvalue())
        return path
    mark = {"semicolon": ";", "tab": "\t", "utf-16": "\t"}.get(coat, ",")
    lines = [header, *cells(rows, "," if coat in ("semicolon", "tab") else ".")]
    if coat == "template":  # of `ask`, with a row that nobody has filled in, and what a spreadsheet adds
        lines = [[*line, ""] for line in [*lines, ["8", "", "", "1", ""], [""] * 5]]
    text = "\r\n".join(mark.join(line) for line in lines) + "\r\n"
    path.write_bytes(text.encode({"bom": "utf-8-sig", "utf-16": "utf-16", "latin-1": "latin-1"}.get(coat, "utf-8")))
    return path


@st.composite
def tellings(draw):
    """One truth, and files of it: with replicate numbers any part, without them each grown from the one before."""
    value = st.sampled_from([None, 1.5, 2.25, -0.125, 1 / 3, 1234.5, 1e-7])
    row = st.fixed_dictionaries(
        {"id": st.sampled_from(POOL["id"].tolist()), "y": value, "plate": st.sampled_from(["P1", "2"])}
    )
    truth = draw(st.lists(row, min_size=1, max_size=8))
    numbered = draw(st.booleans())
    truth = [one | {"replicate": at + 1 if numbered else None} for at, one in enumerate(truth)]
    files = [truth]
    for _ in range(draw(st.integers(1, 4))):
        if numbered:
            files.append(draw(st.lists(st.sampled_from(truth), min_size=1, unique_by=lambda one: one["replicate"])))
        else:
            files.append(truth[: draw(st.integers(1, len(truth)))])
    files = [draw(st.permutations(file)) for file in draw(st.permutations(files))]
    return truth, [(file, draw(st.sampled_from(COATS))) for file in files]


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A campaign to copy: making one takes longer than telling."""
    path = tmp_path_factory.mktemp("empty") / "c.db"
    Campaign.create(path, POOL, "y", "plate", strategy="farthest").close()
    return path


def facts(campaign):
    found = campaign.measurements()
    rows = found[["id", "y", "plate", "replicate", "status"]].astype(object)
    return sorted(map(str, rows.where(rows.notna(), None).to_numpy().tolist()))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(tellings())
def test_any_way_of_telling_one_truth_ends_at_the_same_measurements(empty, tmp_path_factory, case):
    truth, files = case
    folder = tmp_path_factory.mktemp("truth")
    for name in ("once.db", "often.db"):
        (folder / name).write_bytes(empty.read_bytes())
    with Campaign.open(folder / "once.db") as once, Campaign.open(folder / "often.db") as often:
        once.tell(saved(truth, "csv", folder / "truth.csv"))
        for number, (rows, coat) in enumerate(files):
            often.tell(saved(rows, coat, folder / f"{number}.csv"))
        assert facts(often) == facts(once)
        assert len(facts(once)) == len(truth)
        assert all(check.ok for check in often.doctor())
