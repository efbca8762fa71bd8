"""Reports: the verdict in words, tables, figures, one HTML page. They read records, never models. No torch.

`vestige.report.sentence.sentence` gives the quotable verdict, `vestige.report.answers.evidence_table` what it
rests on, `vestige.report.html.write_report` the page.
"""
