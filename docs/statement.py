"""docs/claims.md: what is claimed, of what, and by which rule it is decided; no results.

`python docs/statement.py` writes it anew from `aicau.paper.claims`.
"""

from pathlib import Path

from aicau.paper.claims import RULES, claims

HEADER = """# The paper's claims, as they are tested

Made from `aicau.paper.claims` (a test holds them equal) and committed before the results that it judges; results are in
[reproduction](reproduction.md). Results of an earlier version, with another training of Q, were known when the rules
were written.

**Measure.** The MSE to the truth over the 2,500 points, averaged over the last 10 iterations of a run, as in Figure 5
of the paper (a run of batches has 10). The final MSE is shown as a second measure, and both verdicts stand where they
differ. **Comparison.** Ratio of two strategies in one panel (a Type and a number of initial points), paired by run;
geometric mean, 95% t interval of the logarithms. Below 1 the side of the claim is better.

| rule | a ratio counts |
|---|---|
"""
RULE = """
Everything else is *open*. A claim **holds** where its pooled ratio (mean of logarithms over all comparisons, by run)
counts for it and at most a quarter of the single comparisons count against it; it **does not hold** where the pooled
ratio counts against it; else it is **undecided**. Where *each* is said, every single comparison must count for the
claim, and one against it is enough to refute it.

| | section | the paper's sentence | what is compared | setting | Types | initial points | pairs | rule |
|---|---|---|---|---|---|---|---|---|
"""
# Sentences about results that are no comparison of two strategies' errors, and where they are answered.
# fmt: off
ELSEWHERE = [
    ("1", "our suite of methods ... can outperform other methods in a range of model settings", "claims 1 and 12"),
    ("1", "other AL methods fail (on the toy system)", "claim 11"),
    ("2.4", "because we do not see large changes in either the bias or the PEMSE between two consecutive rounds",
     "a hypothesis of the authors; its consequence is claim 2c"),
    ("3.2", "errors multiply and can amplify (direct); only a single error term (quadratic)",
     "error of the off-diagonal entries of Δ under both estimates: `benchmarks/q_learning.py`"),
    ("4.2", "quadratic estimation will achieve higher accuracy predicting off-diagonal elements",
     "the same table of `benchmarks/q_learning.py`"),
    ("Figure 3", "estimation of the (co)bias is more stable than working with τ or ω directly",
     "not measured: `pemse:tau` estimates τ itself and can be compared by `aicau simulate`; Q on Ω is not built"
     " ([decisions](decisions.md))"),
    ("6", "in some cases the quadratic approach does not offer meaningful benefits", "claims 7b and 9"),
    ("6", "the difference-based methods may not be optimal outside of batched settings", "claims 2a and 2b"),
]
# fmt: on


def stated() -> str:
    """The page of the documentation."""
    panels = {"type1": "I", "type2": "II", "type3": "III"}
    lines = []
    for c in claims():
        rule = RULES[c.judge][0] + (", each" if c.universal else "")
        scope = ", ".join(panels[kind] for kind in c.types), ", ".join(map(str, c.initials)), str(len(c.pairs)), rule
        lines.append(f"| {c.number} | {c.section} | “{c.quote}” | {c.text} | {c.setting} | {' | '.join(scope)} |")
    lines += ["", "Pairs, the side of the claim first:", ""]
    lines += [f"- **{c.number}**: " + "; ".join(f"`{a}` / `{b}`" for a, b in c.pairs) for c in claims()]
    lines += ["", "Other sentences about results:", "", "| section | the paper's sentence | where it is answered |"]
    lines += ["|---|---|---|", *(f"| {section} | “{quote}” | {where} |" for section, quote, where in ELSEWHERE)]
    rules = "\n".join(f"| {name} | {sentence} |" for name, sentence in RULES.values())
    return HEADER + rules + "\n" + RULE + "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("claims.md").write_text(stated(), encoding="utf-8")
