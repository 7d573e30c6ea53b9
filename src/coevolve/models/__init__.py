"""Language models that speak and can be trained. Importing this package loads no model library."""
