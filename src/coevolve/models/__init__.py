"""Language models that generate and learn. Importing this package loads no model library."""
