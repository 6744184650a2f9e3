"""Where the sidecar keeps what it must not forget."""
