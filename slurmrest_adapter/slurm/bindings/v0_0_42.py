"""v0.0.42: Slurm 24.11 to 26.05."""

from __future__ import annotations

from generated_client.v0_0_42 import errors, models
from generated_client.v0_0_42.api import slurm, slurmdb
from slurmrest_adapter.slurm.bindings.rest import RestBinding

BINDING = RestBinding("v0.0.42", slurm, slurmdb, models, errors)
