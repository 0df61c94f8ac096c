"""What tests of runs in other processes share: a model in a file, and a way to stop a run."""

import credibly as cr
from tests.batch.settings import SMALL

MODEL = """
import errno, os, signal
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            layers = nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)
            self.layers = nn.Sequential(*layers).double()

    def forward(self, x):
        return self.layers(x)

class Dying(Net):
    '''Kills its process at a row, once or always.'''

    def forward(self, x):
        if "ray" in " ".join(os.sys.modules) and os.getpid() != DRIVER and (x[:, 0] > 50).any():
            if not os.path.exists(MARK):
                ONCE and open(MARK, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)

class Full(Net):
    '''Where it runs on a worker, the disk is full.'''

    def __init__(self):
        super().__init__()
        if os.getpid() != DRIVER:
            from credibly.io import files
            def full(_): raise OSError(errno.ENOSPC, "No space left on device")
            files.os = type("os", (), {**vars(os), "fsync": staticmethod(full)})
"""


def load(folder, driver, name="Net", **facts):
    """Write the model into a file, with other facts, and load it."""
    known = {"DRIVER": driver, "MARK": str(folder / "mark"), "ONCE": True, **facts}
    text = MODEL + "".join(f"{key} = {value!r}\n" for key, value in known.items())
    (folder / "model.py").write_text(text)
    return cr.load_classifier(f"{folder / 'model.py'}:{name}")


def local(loaded, data, folder):
    """Return the bytes that one process writes."""
    cr.score(loaded, data, folder / "expected.parquet", **SMALL)
    return (folder / "expected.parquet").read_bytes()


class Stop:
    """Stops a run after some rows, as Ctrl-C does."""

    def __init__(self, share):
        self.share = share

    def __call__(self, share):
        if share >= self.share:
            raise KeyboardInterrupt
