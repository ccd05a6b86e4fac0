"""Gaussian-process regression, batched over runs: anisotropic kernels, weighted noise, batch effects, in a box.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| h | `x` | (..., l, p) | inputs |
| θ | `theta` | (..., q) | logs of σ_f², ℓ_1 … ℓ_p, then σ_n² (where learned), σ_b² and ℓ_b (where batches are known) |
| α | `fixed` | (..., l) | variance that is known: added to the diagonal |
| w | `relative` | (..., l) | variance that is learned, up to its scale: σ_n² w; 1/N for a mean of N measurements |
| b | `batch` | (..., l) | rows with one id share noise of variance σ_b²: a shift, or a field that fades with distance |

The covariance of two rows is σ_f² k(r²) + c + σ_b² exp(−|h − h*|/ℓ_b) [same batch], with r² = Σ_j (h_j − h_j*)²/ℓ_j²
and c the variance of an unknown mean; a shift is a field with ℓ_b = ∞. Padded rows (`valid` false) become rows of the
identity: they change neither the likelihood nor a prediction.
"""

from aicau.gp.likelihood import Rows, covariance, negative_log_likelihood, rbf, squares
from aicau.gp.many import EXACT, Many, fitted
from aicau.gp.posterior import Posterior, chunks
from aicau.gp.process import BATCH_BOUNDS, Process, fit
