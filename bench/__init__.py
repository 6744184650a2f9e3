"""Benchmarks: each compares the product with a control, so that no absolute time matters."""
