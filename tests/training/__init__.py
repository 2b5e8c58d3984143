"""Tests of ``convgrad.torch.training``: one hash for a training step."""
