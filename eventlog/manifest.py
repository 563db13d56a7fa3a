"""The log's directory is its manifest: epochs, visible segments with their line counts, and the seal of an epoch.

``folder`` is ``DATA/log`` everywhere.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from eventlog.layout import (
    SegmentFile,
    epoch_folder,
    epoch_names,
    fsync_folder,
    full_folder,
    make_epoch,
    open_segments,
    visible_segments,
)
from eventlog.locks import exclusive
from eventlog.repair import repair_dead_writers

__all__ = ["SegmentFile", "current_epoch", "epochs", "is_sealed", "remove_emptied_epochs", "seal_epoch", "segments"]

_REMOVED = ".removed-"


def epochs(folder: Path, topic: str) -> list[str]:
    """Every epoch of the topic, oldest first (``["000001", ...]``)."""
    return epoch_names(folder, topic)


def current_epoch(folder: Path, topic: str) -> str:
    """The newest epoch, where new segments go; the first one is made if there is none."""
    names = epoch_names(folder, topic)
    if not names:
        make_epoch(folder, topic, "000001")
        return "000001"
    return names[-1]


def segments(folder: Path, topic: str, epoch: str) -> list[SegmentFile]:
    """The epoch's visible segments in order of their sequence numbers."""
    return visible_segments(folder, topic, epoch)


def is_sealed(folder: Path, topic: str, epoch: str) -> bool:
    """True when no writer will add to this epoch any more; so of an epoch that was emptied and removed."""
    place = epoch_folder(folder, topic, epoch)
    if (place / "_SEALED").exists():
        return True
    return not place.exists() and any(int(name) > int(epoch) for name in epoch_names(folder, topic))


def seal_epoch(folder: Path, topic: str, *, timeout_s: float = 30.0) -> str:
    """Open the next epoch, wait until the last writer has left the old one, seal that; returns the new epoch.

    A seal that was cut short is finished by the next call. Raises Unavailable when a writer stays longer than ``timeout_s``.
    """
    current_epoch(folder, topic)
    with exclusive(folder / topic / ".seal", timeout_s=timeout_s, what="another seal"):
        unsealed = [name for name in epoch_names(folder, topic) if not is_sealed(folder, topic, name)]
        newest = epoch_names(folder, topic)[-1]
        if unsealed == [newest]:
            newest = f"{int(newest) + 1:06d}"
            make_epoch(folder, topic, newest)
        for epoch in unsealed:
            if epoch != newest:
                _seal(folder, topic, epoch, timeout_s)
    return newest


def remove_emptied_epochs(folder: Path, topic: str) -> list[str]:
    """Remove folders of sealed epochs whose segments are all archived; returns the epochs.

    The newest two stay: a job may still read the one before the newest. A removal cut short is finished by the next call.
    """
    for place in (folder / topic).glob(f"{_REMOVED}*"):
        _remove_hidden(folder, topic, place.name.removeprefix(_REMOVED))
    emptied = [name for name in epoch_names(folder, topic)[:-2] if _is_emptied(folder, topic, name)]
    for epoch in emptied:
        with exclusive(epoch_folder(folder, topic, epoch) / ".lock"):
            epoch_folder(folder, topic, epoch).rename(folder / topic / f"{_REMOVED}{epoch}")
        _remove_hidden(folder, topic, epoch)
    return emptied


def _remove_hidden(folder: Path, topic: str, epoch: str) -> None:
    with suppress(OSError):  # full records whose lines are gone are left for a person to look at
        full_folder(folder, topic, epoch).rmdir()
    shutil.rmtree(folder / topic / f"{_REMOVED}{epoch}")


def _is_emptied(folder: Path, topic: str, epoch: str) -> bool:
    """A seal lets no writer in, so what is empty after it stays so."""
    is_empty = not visible_segments(folder, topic, epoch) and not open_segments(folder, topic, epoch)
    return is_empty and (epoch_folder(folder, topic, epoch) / "_SEALED").exists()


def _seal(folder: Path, topic: str, epoch: str, timeout_s: float) -> None:
    place = epoch_folder(folder, topic, epoch)
    with exclusive(place / ".lock", timeout_s=timeout_s, what="the epoch's last writer"):
        repair_dead_writers(folder, topic)
        (place / "_SEALED").touch()
        fsync_folder(place)
