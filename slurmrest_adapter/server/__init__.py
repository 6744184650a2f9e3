"""The HTTP edge: interLink's plugin API, health."""
