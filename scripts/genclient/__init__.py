"""Makes the generated slurmrestd client.

spec as emitted -> merge (releases) -> names -> prune (operations) -> repairs -> project (fields)
-> shape repairs -> openapi-python-client with our templates -> format -> provenance.

What to keep and what to repair is data in openapi/*.toml; these modules only know how.
"""
