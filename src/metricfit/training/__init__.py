"""Training: networks with a member dimension, batches, the loop, checkpoints, history."""

from metricfit.training.checkpoint import CheckpointFile
from metricfit.training.history import Callback, EpochEnd, EpochRecord, History
from metricfit.training.loop import Problem, TrainingResult, train
from metricfit.training.networks import MemberMLP, StackedNetworks, build_network
from metricfit.training.recipes import RECIPES, Recipe

__all__ = [
    "RECIPES",
    "Callback",
    "CheckpointFile",
    "EpochEnd",
    "EpochRecord",
    "History",
    "MemberMLP",
    "Problem",
    "Recipe",
    "StackedNetworks",
    "TrainingResult",
    "build_network",
    "train",
]
