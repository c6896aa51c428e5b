"""One thread a test process: several processes share the cores, and threads that wait for one another are slow."""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import hypothesis

# A busy machine is no failure: nothing here is timed.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
