"""Tables, figures and statistics for the notebooks that make the artefacts."""
