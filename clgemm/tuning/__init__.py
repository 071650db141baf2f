"""The tuner: the fastest config of each kernel family and shape class, found, checked and kept."""

from clgemm.tuning.command import tune

__all__ = ["tune"]
