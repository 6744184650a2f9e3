"""v0.0.40: Slurm 23.11 to 25.05."""

from __future__ import annotations

from generated_client.v0_0_40 import errors, models
from generated_client.v0_0_40.api import slurm, slurmdb
from slurmrest_adapter.slurm.bindings.rest import EarlierBinding

BINDING = EarlierBinding("v0.0.40", slurm, slurmdb, models, errors)
