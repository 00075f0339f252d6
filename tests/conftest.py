"""Settings that every test shares."""

import os

import torch
from hypothesis import settings

# Derandomised, so that the same commit always runs the same examples; no deadline, since a busy machine is no bug.
settings.register_profile("quick", max_examples=40, deadline=None, derandomize=True, database=None)
settings.register_profile("thorough", max_examples=1000, deadline=None, derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# The tensors are small: threads only get in each other's way, above all under several pytest workers.
torch.set_num_threads(1)
