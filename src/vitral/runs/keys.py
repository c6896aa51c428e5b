"""Keys of a run's configuration that do not affect its numbers."""

FREE = ("log_every", "sample_every", "sample_tokens", "watch", "checkpoint_every", "keep_checkpoints", "sharding")
"""Keys of [training] that do not affect the results, so that they may change when a run is resumed."""
