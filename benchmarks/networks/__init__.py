"""Which network and which features the default recipe should have, on data sets that the suite does not use."""
