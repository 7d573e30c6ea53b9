"""The data sets and corpora that the papers train and test on, and a real model and questions that packages hold."""
