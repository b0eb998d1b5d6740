"""The paper's figures and tables, one module each; report.py binds them into a page."""
