"""Training: recipes, rows, networks with a member dimension, the loop, checkpoints."""

from metricfit.training.checkpoint import CheckpointFile
from metricfit.training.loop import Callback, EpochEnd, EpochRecord, Trainer, TrainingResult
from metricfit.training.networks import MemberMLP, StackedNetworks, build_network
from metricfit.training.recipes import RECIPES, Recipe
from metricfit.training.rows import Folds, Table

__all__ = [
    "RECIPES", "Callback", "CheckpointFile", "EpochEnd", "EpochRecord", "Folds", "MemberMLP",
    "Recipe", "StackedNetworks", "Table", "Trainer", "TrainingResult", "build_network",
]  # fmt: skip
