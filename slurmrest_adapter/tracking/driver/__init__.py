"""The impure side of tracking: submits, asks, reads, ends; the machine beside it decides."""
