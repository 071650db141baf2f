"""The tuner: finds and validates the fastest config of each family and shape class."""

from clgemm.tuning.command import tune

__all__ = ["tune"]
