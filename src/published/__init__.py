"""The papers' data sets and corpora, and a real model and questions that come in packages."""
