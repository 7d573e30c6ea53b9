"""The page of one run, alone or beside another one: `coevolve report RUN [OTHER]`.

Runs a notebook that needs nothing but the run's folder, so the command works for an installed
package as well.
"""

from pathlib import Path

HERE = Path(__file__)


def write(run: Path, page: Path, other: Path | None = None) -> None:
    """Write the page of a run, with a comparison if there is another run."""
    import papermill
    from nbconvert import HTMLExporter

    from coevolve.runs import record

    parameters = {"out": str(run.resolve())}
    if other is not None:
        parameters["other"] = str(other.resolve())
    notebook = papermill.execute_notebook(
        HERE.with_suffix(".ipynb"),
        None,
        parameters=parameters,
        extra_arguments=["--log-level=CRITICAL"],
        progress_bar=False,
    )
    template = str(HERE.with_name("report_run.html.j2"))
    exporter = HTMLExporter(template_file=template, exclude_anchor_links=True)
    html, _ = exporter.from_notebook_node(notebook)
    record.write_atomically(page, html)
