"""One small binding per API version; only these know the generated client."""
