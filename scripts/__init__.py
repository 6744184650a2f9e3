"""The programs of the checkout: labs, generator, demonstration."""
