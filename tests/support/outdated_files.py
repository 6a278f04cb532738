"""Files as tokiod 0.1.0 wrote them, made of files of this version: other rows of samples, no states around the day."""

import h5py
import numpy as np

from tokiod.tts.schema import ABSENT


def outdate(path, guards):
    """Change a live or sealed file in place. guards: by dataset, each live or sealed column's last sample of the day before."""
    with h5py.File(path, "r+", libver=("v108", "v110"), locking=False, alignment_threshold=1, alignment_interval=4096) as file:
        own = file["_tokiod"]
        if own.attrs["form"] == b"sealed":
            for name, guard in guards.items():
                _outdate_sealed(own, name, np.asarray(guard))
            del own["kept"], own["begin"], own["end"]
            return
        own.attrs["form"] = np.bytes_("live")
        for name, guard in guards.items():
            raw, span = own[f"raw/{name}"][...], own[f"span/{name}"][...]
            del own[f"raw/{name}"], own[f"span/{name}"], own[f"begin/{name}"]
            _contiguous(own, f"raw/{name}", np.concatenate([np.asarray(guard)[np.newaxis], raw]))
            _contiguous(own, f"span/{name}", np.where(span < 0, -1, span + 1))
        del own["begin"]


def _outdate_sealed(own, name, guard):
    kept = own[f"kept/{name}"]
    (column,) = np.nonzero(guard != ABSENT)
    edges = np.stack([np.zeros_like(column), column, guard[column]])
    edges = np.concatenate([edges, kept[...] + [[1], [0], [0]]], axis=1)
    own.create_dataset(f"edges/{name}", data=edges).attrs["proved"] = (kept.attrs["proved"] > 0).astype(np.uint8)


def _contiguous(own, name, content):
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.CONTIGUOUS)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    own.create_dataset(name, content.shape, content.dtype, dcpl=properties)[...] = content
