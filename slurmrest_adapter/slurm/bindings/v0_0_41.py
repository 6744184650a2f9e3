"""v0.0.41: Slurm 24.05 to 25.11."""

from __future__ import annotations

from generated_client.v0_0_41 import errors, models
from generated_client.v0_0_41.api import slurm, slurmdb
from slurmrest_adapter.slurm.bindings.rest import EarlierBinding

BINDING = EarlierBinding("v0.0.41", slurm, slurmdb, models, errors)
