"""v0.0.45: Slurm 26.05."""

from __future__ import annotations

from generated_client.v0_0_45 import errors, models
from generated_client.v0_0_45.api import slurm, slurmdb
from slurmrest_adapter.slurm.bindings.rest import RestBinding

BINDING = RestBinding("v0.0.45", slurm, slurmdb, models, errors)
