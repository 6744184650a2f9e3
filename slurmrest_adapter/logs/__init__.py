"""Container logs, as the runner wrote them."""
