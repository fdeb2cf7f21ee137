"""The report of a run: ``report.html``, ``summary.md`` and ``summary.csv`` from plain values.

``data.Page`` says what can be shown, ``writing.write_report`` writes it.
"""
