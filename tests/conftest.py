"""One thread a test process: several processes share the cores, and threads that wait for one another are slow."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
