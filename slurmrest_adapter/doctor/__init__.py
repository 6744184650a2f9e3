"""Looking at a site before pods do: each check gives a plain verdict and says what to do."""
