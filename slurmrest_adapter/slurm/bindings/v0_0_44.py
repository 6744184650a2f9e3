"""v0.0.44: Slurm 25.11 to 26.05."""

from __future__ import annotations

from generated_client.v0_0_44 import errors, models
from generated_client.v0_0_44.api import slurm, slurmdb
from slurmrest_adapter.slurm.bindings.rest import RestBinding

BINDING = RestBinding("v0.0.44", slurm, slurmdb, models, errors)
