"""v0.0.43: Slurm 25.05 to 26.05."""

from __future__ import annotations

from generated_client.v0_0_43 import errors, models
from generated_client.v0_0_43.api import slurm, slurmdb
from slurmrest_adapter.slurm.bindings.rest import RestBinding

BINDING = RestBinding("v0.0.43", slurm, slurmdb, models, errors)
