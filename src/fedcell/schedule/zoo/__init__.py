"""Policies of other papers, a module each."""
