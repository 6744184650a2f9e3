"""How a plan reaches the node, apart from the job."""
