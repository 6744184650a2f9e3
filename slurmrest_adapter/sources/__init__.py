"""Where news about pods comes from."""
