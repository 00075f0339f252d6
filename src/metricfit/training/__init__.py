"""Training: recipes, rows, networks with a member dimension, the loop, checkpoints."""

from metricfit.training.checkpoint import CheckpointFile
from metricfit.training.loop import Callback, EpochEnd, EpochRecord, Problem, TrainingResult, train
from metricfit.training.networks import MemberMLP, StackedNetworks, build_network
from metricfit.training.recipes import RECIPES, Recipe

__all__ = [
    "RECIPES", "Callback", "CheckpointFile", "EpochEnd", "EpochRecord", "MemberMLP", "Problem", "Recipe",
    "StackedNetworks", "TrainingResult", "build_network", "train",
]  # fmt: skip
