"""One ensemble round with PyRelationAL 1.0.2 and Lightning: train 5 paper networks, predict the pool. Prints seconds.

Run by paper_speed.py with a Python of its own, because PyRelationAL pins older releases:

    python -m venv pr && pr/bin/pip install torch==2.13.0 numpy scipy scikit-learn pandas lightning tabulate
    pr/bin/pip install --no-deps pyrelational==1.0.2
"""

import json
import logging
import sys
import tempfile
import time
import warnings

import numpy as np

setattr(np, "float_", np.float64)  # noqa: B010  PyRelationAL 1.0.2 still uses this name, which NumPy 2 dropped

import lightning.pytorch as lightning  # noqa: E402
import torch  # noqa: E402
from pyrelational.model_managers import LightningEnsembleModelManager  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402


class Network(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        loss = nn.functional.mse_loss(self(batch[0])[:, 0], batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 1e-3)


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    epochs = int(sys.argv[1])
    pool = torch.rand(2500, 2) * 6.28
    out = {}
    for rows in map(int, sys.argv[2:]):
        x = torch.rand(rows * 4 // 5, 2) * 6.28
        train = DataLoader(TensorDataset(x, torch.sin(1.5 * x).prod(-1)), batch_size=len(x))
        with tempfile.TemporaryDirectory() as folder:
            config = {"epochs": epochs, "use_early_stopping": False, "checkpoints_dir": folder, "accelerator": "cpu"}
            manager = LightningEnsembleModelManager(Network, {}, config, n_estimators=5)
            begin = time.perf_counter()
            manager.train(train)
            trained = time.perf_counter() - begin
            begin = time.perf_counter()
            manager(DataLoader(TensorDataset(pool, pool[:, 0]), batch_size=2500))
            out[rows] = [trained / epochs, time.perf_counter() - begin]
    print(json.dumps(out))


if __name__ == "__main__":
    main()
