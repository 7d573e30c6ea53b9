"""The data sets and corpora that the papers train and test on."""
